#!/usr/bin/env python3
"""What URIs name to servers that parse them with urllib or with curl.

Reads a JSON list of URIs from standard input; prints {"urllib": [...], "curl": [...]} with one name for each, or null where the
parser refuses the URI or does not know its scheme. A name is what such a server would open: decoded and normalized.
"""
import ctypes
import ctypes.util
import json
import posixpath
import sys
from urllib.parse import unquote, unquote_plus, urlsplit


def name_of(scheme, authority, path, query):
    """The normalized name: a file has neither host nor query, and no final slash."""
    if scheme == "file":
        return ["file", posixpath.normpath("/" + path.lstrip("/"))]
    final = "/" if path.endswith("/") else ""
    plain = posixpath.normpath(path) if path else ""
    return [scheme, authority, plain.rstrip("/") + final, query]


def by_urllib(uri):
    """As a server with urlsplit() reads it."""
    try:
        parts = urlsplit(uri)
        port = parts.port
        path, query = unquote(parts.path, errors="replace"), unquote_plus(parts.query, errors="replace")
    except ValueError:
        return None
    default = {"http": 80, "https": 443, "ftp": 21}.get(parts.scheme)
    host = unquote(parts.hostname or "", errors="replace")
    return name_of(parts.scheme, f"{host}:{port or default or ''}", path, query)


URL, SCHEME, HOST, PORT, PATH, QUERY = 0, 1, 5, 6, 7, 8
DEFAULT_PORT, URLDECODE = 1 << 0, 1 << 6


class Curl:
    """libcurl's URL parser, which is the one of the command."""

    def __init__(self):
        self.lib = ctypes.CDLL(ctypes.util.find_library("curl") or "libcurl.so.4")
        self.lib.curl_url.restype = ctypes.c_void_p
        self.lib.curl_url_cleanup.argtypes = [ctypes.c_void_p]
        self.lib.curl_url_set.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
        self.lib.curl_url_get.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint]
        self.lib.curl_free.argtypes = [ctypes.c_void_p]

    def part(self, handle, which, flags=0):
        """One part, or None if it is absent. Raises ValueError if it cannot be decoded."""
        text = ctypes.c_void_p()
        code = self.lib.curl_url_get(handle, which, ctypes.byref(text), flags)
        if code == 6:  # CURLUE_URLDECODE
            raise ValueError
        if code or not text.value:
            return None
        value = ctypes.string_at(text.value).decode("utf-8", "replace")
        self.lib.curl_free(text)
        return value

    def name(self, uri):
        """As a server with curl_url_get() reads it."""
        handle = self.lib.curl_url()
        try:
            if self.lib.curl_url_set(handle, URL, uri.encode(), 0):
                return None
            scheme = self.part(handle, SCHEME)
            authority = f"{self.part(handle, HOST) or ''}:{self.part(handle, PORT, DEFAULT_PORT) or ''}".lower()
            query = unquote_plus(self.part(handle, QUERY) or "")
            return name_of(scheme, authority, self.part(handle, PATH, URLDECODE) or "", query)
        except ValueError:
            return None
        finally:
            self.lib.curl_url_cleanup(handle)


curl = Curl()
uris = json.load(sys.stdin)
json.dump({"urllib": [by_urllib(uri) for uri in uris], "curl": [curl.name(uri) for uri in uris]}, sys.stdout)

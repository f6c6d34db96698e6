// What tests outside this folder use of npm jose.
export { calculateJwkThumbprint, createRemoteJWKSet, jwtVerify } from 'jose';

// A server over stdio that reads its messages with encoding/json, which ignores the case of member names and lets the last
// one win. It answers with its reading of the message: the method and the members that it acts on. folding.mjs does the same.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

type arguments struct {
	Owner      string `json:"owner"`
	Repository struct {
		Branch string `json:"branch"`
	} `json:"repository"`
}

type params struct {
	ProtocolVersion string          `json:"protocolVersion"`
	Name            string          `json:"name"`
	URI             string          `json:"uri"`
	TaskID          string          `json:"taskId"`
	Task            json.RawMessage `json:"task"`
	Arguments       arguments       `json:"arguments"`
	Ref             struct {
		Name string `json:"name"`
		URI  string `json:"uri"`
	} `json:"ref"`
	Argument struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"argument"`
	Context struct {
		Arguments arguments `json:"arguments"`
	} `json:"context"`
	Meta struct {
		ProgressToken json.RawMessage `json:"progressToken"`
	} `json:"_meta"`
}

type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params params          `json:"params"`
}

type object = map[string]any
type list = []any

func said(p params) object {
	text := fmt.Sprintf("%s owner=%s branch=%s", p.Name, p.Arguments.Owner, p.Arguments.Repository.Branch)
	return object{"content": list{object{"type": "text", "text": text}}}
}

func task(id, note string) object {
	return object{"taskId": id, "status": "working", "statusMessage": note, "ttl": 60000,
		"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
}

func answer(m message) object {
	p := m.Params
	tool := func(name string) object { return object{"name": name, "inputSchema": object{"type": "object"}} }
	switch m.Method {
	case "initialize":
		return object{"protocolVersion": p.ProtocolVersion, "serverInfo": object{"name": "folding", "version": "1.0.0"},
			"capabilities": object{"tools": object{}, "prompts": object{}, "resources": object{"subscribe": true}, "completions": object{},
				"tasks": object{"list": object{}, "cancel": object{}, "requests": object{"tools": object{"call": object{}}}}}}
	case "tools/list":
		return object{"tools": list{tool("get_repo"), tool("delete_repo")}}
	case "tools/call":
		if p.Task != nil {
			return object{"task": task(p.Arguments.Owner, "")}
		}
		return said(p)
	case "prompts/list":
		return object{"prompts": list{object{"name": "review"}, object{"name": "release"}}}
	case "prompts/get":
		return object{"messages": list{object{"role": "user", "content": said(p)["content"].(list)[0]}}}
	case "resources/list":
		return object{"resources": list{object{"uri": "repo:///open", "name": "open"}, object{"uri": "repo:///secret", "name": "secret"}}}
	case "resources/templates/list":
		return object{"resourceTemplates": list{object{"uriTemplate": "repo:///{owner}", "name": "owner"}}}
	case "resources/read":
		return object{"contents": list{object{"uri": p.URI, "text": p.URI}}}
	case "completion/complete":
		text := fmt.Sprintf("%s%s %s=%s owner=%s", p.Ref.Name, p.Ref.URI, p.Argument.Name, p.Argument.Value, p.Context.Arguments.Owner)
		return object{"completion": object{"values": list{text}}}
	case "tasks/get", "tasks/cancel":
		return task(p.TaskID, p.TaskID)
	}
	return object{}
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<22)
	out := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var m message
		if json.Unmarshal(lines.Bytes(), &m) != nil || m.ID == nil || m.Method == "" {
			continue
		}
		if m.Method == "tools/call" && m.Params.Meta.ProgressToken != nil {
			_ = out.Encode(object{"jsonrpc": "2.0", "method": "notifications/progress",
				"params": object{"progressToken": m.Params.Meta.ProgressToken, "progress": 1}})
		}
		_ = out.Encode(object{"jsonrpc": "2.0", "id": m.ID, "result": answer(m)})
	}
}

// The SDK classes that tests elsewhere in the tree use: Node resolves the packages from this directory.
export { Client as ClientV1 } from '@modelcontextprotocol/sdk/client/index.js';
export { SSEClientTransport as SseTransportV1 } from '@modelcontextprotocol/sdk/client/sse.js';
export { StdioClientTransport as StdioTransportV1 } from '@modelcontextprotocol/sdk/client/stdio.js';
export { StreamableHTTPClientTransport as HttpTransportV1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
export { InMemoryTaskStore as TaskStoreV1 } from '@modelcontextprotocol/sdk/experimental/tasks/stores/in-memory.js';
export * as schemas from '@modelcontextprotocol/sdk/types.js';

export { Client as ClientV2, StreamableHTTPClientTransport as HttpTransportV2 } from '@modelcontextprotocol/client';
export { StdioClientTransport as StdioTransportV2 } from '@modelcontextprotocol/client/stdio';

// The calls of the aggregation tests for each server, with valid arguments and a check of the answer.
import assert from 'node:assert/strict';
import { join } from 'node:path';

const textOf = result => result.content.map(block => block.text ?? '').join('\n');
const says = pattern => result => assert.match(textOf(result), pattern);
const kinds = (...types) => result => assert.deepEqual(result.content.map(({ type }) => type), types);

/** Each entry: tool, arguments, check of the result. Later calls rely on earlier ones. */
export const everythingCalls = ({ wrap }) => [
    ['echo', { message: 'hello' }, says(/^Echo: hello$/)],
    ['get-annotated-message', { messageType: 'error', includeImage: true }, kinds('text', 'image')],
    ['get-env', {}, says(/"PATH"/)],
    ['get-resource-links', { count: 2 }, result => {
        assert.deepEqual(result.content.slice(1).map(({ type, uri }) => [type, uri]), [
            ['resource_link', wrap('demo://resource/dynamic/blob/1')],
            ['resource_link', wrap('demo://resource/dynamic/text/2')]
        ]);
    }],
    ['get-resource-reference', { resourceType: 'Text', resourceId: 1 }, ({ content }) => {
        assert.equal(content.find(({ type }) => type === 'resource').resource.uri, wrap('demo://resource/dynamic/text/1'));
    }],
    ['get-structured-content', { location: 'Chicago' }, result => {
        assert.deepEqual(Object.keys(result.structuredContent).sort(), ['conditions', 'humidity', 'temperature']);
    }],
    ['get-sum', { a: 2, b: 40.5 }, says(/42\.5/)],
    ['get-tiny-image', {}, ({ content }) => assert.ok(content.some(({ type }) => type === 'image'))],
    ['gzip-file-as-resource', { name: 'hello.gz', data: 'data:text/plain,hello', outputType: 'resource' }, ({ content: [{ resource }] }) => {
        assert.equal(resource.uri, wrap('demo://resource/session/hello.gz'));
    }],
    ['toggle-simulated-logging', {}, says(/^Started/)],
    ['toggle-simulated-logging', {}, says(/^Stopped/)],
    ['toggle-subscriber-updates', {}, says(/^Started/)],
    ['toggle-subscriber-updates', {}, says(/^Stopped/)],
    ['trigger-long-running-operation', { duration: 0.2, steps: 2 }, says(/completed/)],
    ['trigger-sampling-request', { prompt: 'hello' }, says(/a sampled answer/)],
    ['trigger-elicitation-request', {}, says(/Name: Ada/)],
    ['get-roots-list', {}, says(/roots/i)]
];

export const memoryCalls = () => {
    const relation = { from: 'Ada', to: 'Babbage', relationType: 'wrote to' };
    const entity = name => ({ name, entityType: 'person', observations: ['born in London'] });
    return [
        ['create_entities', { entities: [entity('Ada'), entity('Babbage')] }, says(/Ada/)],
        ['create_relations', { relations: [relation] }, says(/wrote to/)],
        ['add_observations', { observations: [{ entityName: 'Ada', contents: ['likes numbers'] }] }, says(/likes numbers/)],
        ['read_graph', {}, says(/likes numbers/)],
        ['search_nodes', { query: 'numbers' }, says(/Ada/)],
        ['open_nodes', { names: ['Babbage'] }, says(/Babbage/)],
        ['delete_observations', { deletions: [{ entityName: 'Ada', observations: ['likes numbers'] }] }, says(/delete/i)],
        ['delete_relations', { relations: [relation] }, says(/delete/i)],
        ['delete_entities', { entityNames: ['Ada', 'Babbage'] }, says(/delete/i)]
    ];
};

export const filesystemCalls = directory => {
    const path = name => join(directory, name);
    return [
        ['list_allowed_directories', {}, says(new RegExp(directory))],
        ['create_directory', { path: path('sub') }, says(/success/i)],
        ['write_file', { path: path('sub/a.txt'), content: 'one\ntwo\nthree\n' }, says(/success/i)],
        ['read_file', { path: path('sub/a.txt'), head: 1 }, says(/^one/)],
        ['read_text_file', { path: path('sub/a.txt') }, says(/^one\ntwo\nthree/)],
        ['read_multiple_files', { paths: [path('sub/a.txt')] }, says(/two/)],
        ['read_media_file', { path: path('sub/a.txt') }, result => assert.equal(result.content.length, 1)],
        ['edit_file', { path: path('sub/a.txt'), edits: [{ oldText: 'two', newText: 'zwei' }] }, says(/\+zwei/)],
        ['get_file_info', { path: path('sub/a.txt') }, says(/size/)],
        ['list_directory', { path: path('sub') }, says(/\[FILE\] a\.txt/)],
        ['list_directory_with_sizes', { path: path('sub') }, says(/a\.txt/)],
        ['directory_tree', { path: directory }, says(/"sub"/)],
        ['search_files', { path: directory, pattern: '**/*.txt' }, says(/a\.txt/)],
        ['move_file', { source: path('sub/a.txt'), destination: path('sub/b.txt') }, says(/success/i)]
    ];
};

/** Tools of server-everything that have separate tests, because they need tasks or URL elicitation. */
export const calledElsewhere = [
    'simulate-research-query',
    'trigger-url-elicitation',
    'trigger-sampling-request-async',
    'trigger-elicitation-request-async'
];

// Package lsp is a language server for experiment files and site files. Serve speaks the protocol LSP 3.17 over a
// pair of streams. rpc.go reads and writes messages, server.go keeps the open documents and loads their experiments,
// outline.go finds blocks and settings in a text that need not parse, cursor.go the role of a place in it. Diagnostics
// are those of lang.Load; completion and hover follow from the documentation of the kinds.
package lsp

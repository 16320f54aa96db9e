// Package artifact keeps what stages make: immutable folders named by their content, and manifests that say which
// node made which of them, from what, and at what cost.
//
// Start with Open. A node's result is looked up by key (Store.Lookup); a new one is written into a Staging and
// appears under its key at once (Staging.Commit), so a kill at any moment leaves either the whole result or
// none. An Artifact is one port of a result, opened for reading; its rows are read with Rows and written with
// CreateRows.
//
// The store's folder, private to its user, made on the first write:
//
//	objects/DIGEST/…     files of one port, read-only, all with the modification time Sealed
//	nodes/KEY.json       manifests, named once they are whole (disk.Draft): the commit
//	last/HASH.json       the key last committed for an experiment's address: another name of its manifest
//	staging/KEY/…        results being written, by the holder of the key's lock
//	locks/KEY            locked (flock) while a node runs; the kernel frees it with its holder. It says who holds it, and
//	                     how a program ended whose engine was gone by then (Lock.Exit)
//	users/…              locked while a run, or the process of a stage, uses the store: the keys that gc leaves alone (User)
//	work/KEY/            scratch of a node that has not finished, so that it can resume
//	runs/EXPERIMENT/…    run folders; they belong to package engine
//	published.jsonl      copies of results beside experiments; it belongs to package engine
//	edited/…             objects found edited by hand, moved aside when their node ran again
//	removed/…            what gc is deleting
//
// Durability. An object is renamed to its place before its bytes are on the disk, so that the next node can read it at
// once; a manifest appears only after a flush of the objects it names. So a visible manifest never names bytes that a power cut
// could take, and an object without a manifest is garbage. Files get the time stamp Sealed after that flush: what a power
// cut tore has another one and is hashed before anybody believes it. The manifest itself is named unflushed and becomes
// durable with the next flush, at the latest when the Committer is closed; torn, it counts as absent.
//
// Many small results cost mostly the file system's making and unmaking of files. So scratch folders and lock files of nodes
// that have ended are renamed for the next ones (spares).
//
// The digest of an object covers names and contents, nothing else. Files whose name begins with "times." hold clock
// times, rates and memory; they make an object of their own (Output.Aside), so that they never reach a key.
package artifact

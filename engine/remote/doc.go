// Package remote shares results through S3-compatible storage or a folder, for example on a network file system (the
// remote block of the site file).
//
// Start with Open. Find asks for manifests by key, Fetch commits a result to the local store with the ports that are
// read, Send and PushResult copy one to the remote store. A miss, a damaged object and a dead network are reported
// once; they never fail a run.
//
// A bucket stores objects by name; the layout is the same for each kind of storage:
//
//	v1/nodes/KEY.json   a manifest below a line with its SHA-256, written last and only if none exists: the commit
//	v1/files/SHA256     a file, shared by all outputs that contain it
//	v1/probe            of Check
//	v1/tmp/…            in a folder, files being written
//
// A folder is foreign: only plain files count, of the size in the record. A damaged record or file is a miss, and the
// result that is made instead replaces it.
//
// Nothing is deleted here: the bucket's lifecycle rules do that, and its policy decides who may write.
package remote

// Package remote shares results through S3-compatible storage or a folder, for example on a network file system (the
// remote block of the site file).
//
// Start with Open. Find asks for manifests by key, Fetch commits a result to the local store with the ports that are
// read, Send and PushResult copy one to the remote store. A miss, a damaged object and a dead network are reported
// once; they never fail a run.
//
// A bucket stores blobs by name, with the names of a store; a folder of results is one:
//
//	results/KEY.json     a manifest with its own SHA-256, written last and only if none exists: the commit
//	objects/DIGEST/NAME  a file of a port
//	probe                of Check
//
// A folder is foreign: only plain files count, of the size in the manifest. A damaged manifest or file is a miss, and
// the result that is made instead replaces it.
//
// Nothing is deleted here: the bucket's lifecycle rules do that, and its policy decides who may write.
package remote

// Package remote shares results through S3-compatible storage or a folder, for example on a network file system (the
// remote block of the site file).
//
// Start with Open. Find asks for manifests by key, Fetch commits a result to the local store with the ports that are
// read, Send and PushResult copy one to the remote store. A miss, a damaged object and a dead network are reported
// once; they never fail a run.
//
// A bucket stores objects by name; the layout is the same for each kind of storage:
//
//	v1/nodes/KEY.json        a manifest with signatures, written last and only if none exists: the commit
//	v1/packs/DIGEST.PACK.I   files of an output that are smaller than PACK bytes, one after the other, cut at 64 MB
//	v1/files/SHA256          a larger file, shared by all outputs that contain it
//	v1/tmp/…                 probes; in a folder also files being written
//
// Reader and writer derive the packs from the manifest, so a pack has no header: each of its bytes is a byte of a file
// with a recorded hash.
//
// A collection deletes an object that no manifest names once its last write is older than the grace. A push therefore
// writes an object again if it is older than half of the grace, and names it in a manifest within a quarter.
package remote

// Package artifact is the store of results: immutable folders named by their content, and a manifest per
// result that records its node, inputs and cost.
//
// Start with Open. Store.Lookup returns the result of a key. A new result is written into a Staging and
// committed (Staging.Commit): a kill at any moment leaves either the whole result or none. An Artifact is one
// port of a result; Rows reads its rows and WriteRows writes them.
//
// The store's folder is private to its user and created by the first write:
//
//	objects/DIGEST/…     files of one port, read-only, with the modification time Sealed; .gone-… is being deleted
//	results/KEY.json     manifests, named once they are complete: the commit
//	last/HASH.json       the key of the last result of an experiment's address
//	staging/KEY/…        results being written by the holder of the key's lock; with .manifest they are complete
//	locks/KEY            locked (flock) while a node runs; it describes the holder and has the exit record of its program
//	claims/KEY           instead of locks/KEY in a store that several hosts write; locks is then a file (claim.go)
//	use                  locked (flock): shared while a run writes pins or a result gets its names, exclusively by gc
//	work/KEY/            scratch folder of a node without a result, so that it can resume
//	series/…             states from which a longer result resumes
//	runs/EXPERIMENT/…    run folders; they belong to package runs
//	jobs/KEY/…           jobs of a cluster that execute nodes (package slurm), and bin/…, the programs that they start
//
// Durability. Commit hashes the files and gives them the time Sealed, flushes them with those of all results that
// wait, renames objects to their places and then names the manifest. After a kill or an error in this last part any
// process that acquires the lock of the key repeats it (Complete). After a power cut an object is whole or not here,
// and a manifest is whole or absent. A file with another time, as in a copy of a store, is hashed: a right one is
// healed, an object with a wrong one is damaged and its node runs again.
//
// The digest of an object covers names and contents. Files whose name begins with "times." contain clock
// times, rates and memory; they form an object of their own (Output.Times), so that they never reach a key.
package artifact

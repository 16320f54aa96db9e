// Package drill generates small multi-turn tasks over the benchmark's simulated classes. A drill is a
// bfcl.Task and runs as a bfcl.Episode. Drills are easy enough for a randomly initialized transformer
// of half a million parameters, and keep the difficulties of the benchmark: values to copy, results
// to read, references to earlier turns, and requests without a required value. Start with Generate.
//
// A turn is one intent (see intents): a request in one of four phrasings, with a fifth held out for
// testing, and its ground truth of one or two calls. The classes are GorillaFileSystem, TicketAPI and
// MessageAPI. Besides multi-turn drills there are single-turn drills, and copy drills, which have no
// environment: they train the copying of words and are for fine-tuning only.
//
// The split is by family. Ordered pairs of consecutive intents are held out by hash (HeldOut):
// training drills contain no held-out pair, test drills at least one. The set "test" uses the
// training phrasings, "test_new" the held-out one.
package drill

// Package drill generates small multi-turn tasks over the benchmark's own simulated classes, in the benchmark's own
// form: a drill is a bfcl.Task and runs as a bfcl.Episode. They are easy enough for a transformer of half a million
// parameters that starts from random weights, and keep what makes the benchmark hard: values to copy, observations to
// read, references to earlier turns, requests that lack a value.
//
// A turn is one intent (see intents): a request in one of four phrasings, a fifth held out for testing, and its ground
// truth of one or two calls. Start with Generate.
//
// The split is by family. An ordered pair of consecutive intents is held out by hash (HeldOut); training drills
// contain no held-out pair, test drills at least one. In the set "test" the wording is that of training, in
// "test_new" every request uses its held-out phrasing.
//
// Three classes take part: GorillaFileSystem, TicketAPI, MessageAPI. Besides multi-turn drills there are single-turn
// ones, and copy drills, which have no classes and no environment: they only teach to copy the words of a request in
// order, and feed fine-tuning alone.
package drill

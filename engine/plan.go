package engine

import (
	"time"

	"github.com/hashicorp/hcl/v2"

	"rcgrpo/engine/artifact"
)

// Plan says for every node of an experiment what a run would do with it and why.
type Plan struct {
	Experiment *Experiment
	Store      *artifact.Store
	Nodes      []*Planned // topological; with targets only those and what they read
}

// Planned is a node with its verdict.
type Planned struct {
	*Node
	Verb     Verb
	Cause    Cause
	Key      string             // "" while an input is still to be built
	Manifest *artifact.Manifest // of UpToDate and Collected
	Last     *artifact.Manifest // what this address committed last, nil when new
	Force    bool               // -replace: runs although the store has its key
	Expect   time.Duration      // from recorded runs; 0: unknown
}

// Verb is what a run would do with a node.
type Verb string

const (
	UpToDate           Verb = "up to date"
	Run                Verb = "run"
	RunUnlessUnchanged Verb = "run unless unchanged" // an input is going to be rebuilt
	Collected          Verb = "collected"            // manifest known, bytes gone, nobody who runs reads them
)

// Cause is the smallest reason for a Verb.
type Cause struct {
	Reason Reason
	Text   string    // `settings.lr 1e-5 → 2e-5`
	Range  hcl.Range // where the value stands now; zero when no place is to blame
}

// Reason is the closed list of causes, for programs.
type Reason string

const (
	ReasonNone      Reason = ""
	ReasonNew       Reason = "new"       // this address has never been committed
	ReasonSetting   Reason = "setting"   // a value or a file's content differs
	ReasonInput     Reason = "input"     // an input has other content, or may get it
	ReasonVersion   Reason = "version"   // the kind's version differs
	ReasonSeed      Reason = "seed"      // it draws with another seed
	ReasonMissing   Reason = "missing"   // recorded, but its bytes are damaged or gone
	ReasonCollected Reason = "collected" // gc removed the bytes and something that runs reads them
	ReasonRequested Reason = "requested" // -replace
)

package engine

// Site is what the site file says about this machine. Nothing of it is in any key.
type Site struct {
	Path      string            // the site file; "" when there is none
	StorePath string            // absolute
	Limit     int64             // bytes; applied by `store gc` only; 0: none
	Data      map[string]string // named data folders (absolute), for example "bfcl"
	BFCL      string            // Data["bfcl"]
	CPUs      int               // slots of the local executor
	Memory    int64             // bytes; 0: not limited
	GPUs      []string          // device ids; nil with AutoGPUs
	AutoGPUs  bool              // the runner finds out which devices there are
	Executor  string            // name of the default executor
}

package lang

import (
	"cmp"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
)

// Slurm contains the settings of an executor of type "slurm". No key depends on it.
type Slurm struct {
	Name         string
	Options      []string          // of sbatch: partition, account and so on
	Exclude      string            // nodes
	GRES         string            // of devices: --gres=GRES:n
	CPUs         int               // of a stage that names none
	Memory       int64             // likewise, bytes
	Time         time.Duration     // limit of a stage without an estimate
	Factor       float64           // limit of other stages in their expected times
	Checkpoint   time.Duration     // between the request to stop and the limit; 0: no request
	Continues    int               // starts after time limits
	FreeAttempts int               // starts after preemption or the loss of a node
	Jobs         int               // in the queue or running at once
	Poll         time.Duration     // least interval of status calls
	Deadline     time.Duration     // of a command of Slurm
	Grace        time.Duration     // after which a job that is not listed counts as ended
	Visible      time.Duration     // in which a result or record of another node becomes visible
	Lost         time.Duration     // after which a process without a sign of life counts as ended
	Setup        []string          // lines of sh before the program
	Env          map[string]string // variables of jobs
	Secrets      map[string]string // files with the values of variables, read on the node
	Path         string            // folder of Slurm's commands; "": PATH
}

// slurmBlock are the settings of an executor block of type "slurm".
type slurmBlock struct {
	Partition    string            `hcl:"partition,optional" doc:"slurm: of all jobs"`
	Account      string            `hcl:"account,optional" doc:"slurm: charged for the jobs"`
	QOS          string            `hcl:"qos,optional" doc:"slurm: quality of service"`
	Constraint   string            `hcl:"constraint,optional" doc:"slurm: features that nodes must have"`
	Reservation  string            `hcl:"reservation,optional" doc:"slurm: reservation of the jobs"`
	Exclude      string            `hcl:"exclude,optional" doc:"slurm: nodes that get no job"`
	Extra        []string          `hcl:"extra,optional" doc:"slurm: further options of sbatch"`
	GRES         string            `hcl:"gres,optional" doc:"slurm: name of devices, which may have a type: \"gpu:h200\""`
	Time         time.Duration     `hcl:"time,optional" doc:"slurm: limit of stages that have never run; default 4h"`
	Factor       float64           `hcl:"factor,optional" doc:"slurm: limit of other stages, in expected times; default 2"`
	Checkpoint   *time.Duration    `hcl:"checkpoint,optional" doc:"slurm: a stage is asked to stop so long before its"`
	_            struct{}          `doc:"limit, and continues in a new job; \"0s\": it is not asked; default 3m"`
	Continues    *int              `hcl:"continues,optional" doc:"slurm: starts after time limits; default 100"`
	FreeAttempts *int              `hcl:"free_attempts,optional" doc:"slurm: starts after preemption or a lost node,"`
	_            struct{}          `doc:"beside those of retry; default 20"`
	Jobs         int               `hcl:"jobs,optional" doc:"slurm: jobs in the queue or running; default 200"`
	Poll         time.Duration     `hcl:"poll,optional" doc:"slurm: least interval of status calls; default 10s"`
	Deadline     time.Duration     `hcl:"deadline,optional" doc:"slurm: limit of each command of Slurm; default 60s"`
	Grace        time.Duration     `hcl:"grace,optional" doc:"slurm: a job not listed for so long has ended; default 5m"`
	Visible      time.Duration     `hcl:"visible,optional" doc:"slurm: until files of a node are seen; default 90s"`
	Lost         time.Duration     `hcl:"lost,optional" doc:"slurm: time after which a silent node is lost; default 2m"`
	Setup        []string          `hcl:"setup,optional" doc:"slurm: lines of sh before the program, such as module load"`
	Env          map[string]string `hcl:"env,optional" doc:"slurm: variables of jobs, which Slurm stores"`
	Secrets      map[string]string `hcl:"secrets,optional" doc:"slurm: files of mode 0600 with the values of variables,"`
	_            struct{}          `doc:"read on the node"`
	Path         string            `hcl:"path,optional" doc:"slurm: folder of Slurm's commands; default: found in PATH"`
}

// localNames and slurmNames are the settings that only executors of one type have.
var (
	localNames = []string{"gpus", "gpu_reserve", "gpu_memory", "gpu_tokens_per_second"}
	slurmNames = []string{"partition", "account", "qos", "constraint", "reservation", "exclude", "extra", "gres", "time",
		"factor", "checkpoint", "continues", "free_attempts", "jobs", "poll", "deadline", "grace", "visible", "lost",
		"setup", "env", "secrets", "path"}
)

// siteSlurm reads an executor of type "slurm".
func (l *loader) siteSlurm(e executorBlock) Slurm {
	b := e.slurmBlock
	for _, d := range []struct {
		set *time.Duration
		def time.Duration
	}{{&b.Time, 4 * time.Hour}, {&b.Poll, 10 * time.Second}, {&b.Deadline, time.Minute}, {&b.Grace, 5 * time.Minute},
		{&b.Visible, 90 * time.Second}, {&b.Lost, 2 * time.Minute}} {
		*d.set = cmp.Or(*d.set, d.def)
	}
	s := Slurm{Name: e.Name, Exclude: b.Exclude, GRES: cmp.Or(b.GRES, "gpu"), CPUs: 1, Memory: 4e9, Time: b.Time,
		Factor: cmp.Or(b.Factor, 2), Checkpoint: 3 * time.Minute, Continues: 100, FreeAttempts: 20,
		Jobs: cmp.Or(b.Jobs, 200), Poll: b.Poll, Deadline: b.Deadline, Grace: b.Grace, Visible: b.Visible, Lost: b.Lost,
		Setup: b.Setup, Env: b.Env, Secrets: map[string]string{}}
	for _, o := range [][2]string{{"partition", b.Partition}, {"account", b.Account}, {"qos", b.QOS},
		{"constraint", b.Constraint}, {"reservation", b.Reservation}} {
		if o[1] != "" {
			s.Options = append(s.Options, "--"+o[0]+"="+o[1])
		}
	}
	s.Options = append(s.Options, b.Extra...)
	setPointer(&s.Checkpoint, b.Checkpoint)
	setPointer(&s.Continues, b.Continues)
	setPointer(&s.FreeAttempts, b.FreeAttempts)
	if n, ok := e.CPUs.(int64); ok && n >= 1 {
		s.CPUs = int(n)
	} else if e.CPUs != nil {
		l.errorf(e.At["cpus"], "Bad number", "cpus of an executor of type slurm must be a number of at least 1.")
	}
	if text, _ := e.Memory.(string); e.Memory != nil {
		size, err := ParseBytes(text)
		if err != nil || size < 1<<20 {
			l.errorf(e.At["memory"], "Bad size", "memory of an executor of type slurm must be a size such as \"4GB\".")
		}
		s.Memory = size
	}
	l.slurmLimits(e, s)
	base := filepath.Dir(l.x.Site.Path)
	path := func(at hcl.Range, path string) string {
		resolved, err := l.resolve(base, path)
		if err != nil {
			l.errorf(at, "No path", "The path cannot be resolved: %s.", err)
		}
		return resolved
	}
	for name, file := range b.Secrets {
		s.Secrets[name] = path(e.At["secrets"], file)
	}
	if b.Path != "" {
		s.Path = path(e.At["path"], b.Path)
	}
	return s
}

func setPointer[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

// slurmLimits reports values of an executor of type "slurm" that are out of range.
func (l *loader) slurmLimits(e executorBlock, s Slurm) {
	for _, d := range []struct {
		at        hcl.Range
		name      string
		is, least time.Duration
	}{{e.At["time"], "time", s.Time, time.Minute}, {e.At["poll"], "poll", s.Poll, time.Second},
		{e.At["deadline"], "deadline", s.Deadline, time.Second}, {e.At["grace"], "grace", s.Grace, time.Second},
		{e.At["visible"], "visible", s.Visible, time.Second}, {e.At["lost"], "lost", s.Lost, time.Second}} {
		if d.is < d.least {
			l.errorf(d.at, "Bad value", "%s must be at least %v; got %v.", d.name, d.least, d.is)
		}
	}
	if s.Factor < 1 {
		l.errorf(e.At["factor"], "Bad value", "factor must be at least 1; got %v.", s.Factor)
	}
	if s.Checkpoint < 0 || s.Continues < 0 || s.FreeAttempts < 0 || s.Jobs < 1 {
		l.errorf(e.At[""], "Bad value", "checkpoint, continues and free_attempts must not be negative, and jobs must be at "+
			"least 1.")
	}
	for _, option := range e.Extra {
		if !strings.HasPrefix(option, "-") {
			l.errorf(e.At["extra"], "Bad option", "extra contains options of sbatch such as \"--nice=100\"; got %q.", option)
		}
	}
	for name := range e.Env {
		if _, twice := e.Secrets[name]; twice || strings.HasPrefix(name, "SLURM_") || strings.Contains(name, "=") {
			l.errorf(e.At["env"], "Bad variable", "env must not contain %s: a name of Slurm, or one of secrets.", name)
		}
	}
}

// onlyIn reports settings of an executor that only the other type has.
func (l *loader) onlyIn(e executorBlock, others []string) {
	for name, r := range e.At {
		if r != e.At[""] && slices.Contains(others, name) {
			l.errorf(r, "Setting of another executor", "An executor of type %s has no setting %s.", cmp.Or(e.Type, e.Name),
				name)
		}
	}
}

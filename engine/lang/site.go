package lang

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/hashicorp/hcl/v2"
)

// Site is the content of the site file, the settings of this machine. No key depends on it.
type Site struct {
	Path        string   // the site file; "" without one
	StorePath   string   // absolute; "" if no file names a store and there is no home folder
	SharedStore bool     // several hosts write the store
	Limit       int64    // bytes; applied by `store gc` only; 0: none
	BFCL        string   // folder of the benchmark's data, absolute; "" if not set
	CPUs        int      // slots of the local executor; 0: as many as this process may use
	Memory      int64    // bytes; 0: not limited
	GPUs        []string // device IDs; nil with AutoGPUs
	AutoGPUs    bool     // the engine detects the devices
	// GPUReserve is the part of each GPU's memory, in bytes, that no stage plans with.
	GPUReserve int64
	GPUMemory  int64            // bytes of each GPU; 0: what the driver reports
	GPUTokens  float64          // tokens of episodes that a GPU samples and trains per second; 0: not stated
	Executor   string           // name of the default executor
	Slurm      map[string]Slurm // executors of type "slurm", by name
	APIs       map[string]API   // by the variable with the key
	Notify     []string         // command to start at the end of a run; nil: none
	Remote     *Remote          // nil: none
}

// API limits the calls with an API key and gives prices of models.
type API struct {
	// limit of calls; default: as the API reports
	RequestsPerMinute float64 `hcl:"requests_per_minute,optional"`
	// limit of tokens of input
	TokensPerMinute float64 `hcl:"tokens_per_minute,optional"`

	// by model: dollars for a million tokens of input, of output
	Prices map[string][]float64 `hcl:"prices,optional"`
}

// defaultStore is the store without a site file.
const defaultStore = "~/.cache/rcgrpo"

type siteSettings struct {
	// where results are kept
	Store *storeBlock `hcl:"store,block"`
	// folders of data that stages read
	Data *dataBlock `hcl:"data,block"`
	// executors of stages
	Executors []executorBlock `hcl:"executor,block"`
	// rates and prices of an API key
	APIs []apiBlock `hcl:"api,block"`
	// command to start at the end of a run
	Notify *notifyBlock `hcl:"notify,block"`
	// store that several machines share
	Remote *remoteBlock `hcl:"remote,block"`
	// executor of stages that name none
	Default string `hcl:"default_executor,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

type storeBlock struct {
	// folder
	Path string `hcl:"path,optional"`
	// size limit applied by store gc
	Limit byteSize `hcl:"limit,optional"`
	// runs on several hosts write the store; this cannot be undone
	Shared bool `hcl:"shared,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

type dataBlock struct {
	// folder of the benchmark's data
	BFCL *string `hcl:"bfcl,optional"`

	At map[string]hcl.Range `hcl:",ranges"`
}

type notifyBlock struct {
	// a program and its arguments, started in the site file's folder
	Command []string `hcl:"command"`

	At map[string]hcl.Range `hcl:",ranges"`
}

type apiBlock struct {
	Key string `hcl:"key,label"`
	API

	At map[string]hcl.Range `hcl:",ranges"`
}

type executorBlock struct {
	Name string `hcl:"name,label"`
	// "local" or "slurm"; default: the name
	Type string `hcl:"type,optional"`
	// IDs of devices, such as [0, 1] or ["GPU-…"]; default: the indexes of nvidia-smi
	GPUs []json.RawMessage `hcl:"gpus,optional"`
	// slots; 0: the CPUs that this process may use; slurm: of a stage that names none (1)
	CPUs uint32 `hcl:"cpus,optional"`
	// size such as "64GB"; default: no limit; slurm: of a stage that names none ("4GB")
	Memory byteSize `hcl:"memory,optional"`

	// memory of each GPU for its driver, libraries and fragmentation, which no stage plans with; default: 4GiB
	GPUReserve byteSize `hcl:"gpu_reserve,optional"`
	// memory of each GPU, such as "141GB", to plan for devices that this machine lacks; default: what the driver
	// reports
	GPUMemory byteSize `hcl:"gpu_memory,optional"`
	// tokens of episodes that one GPU samples and trains on per second; plan forecasts the GPU hours of trainings
	// that have never run
	GPUTokens float64 `hcl:"gpu_tokens_per_second,optional"`

	slurmBlock

	At map[string]hcl.Range `hcl:",ranges"`
}

func (e *executorBlock) setDefaults() { e.GPUReserve, e.Slurm = DefaultGPUReserve, defaultSlurm() }

// DefaultGPUReserve is the reserve without a site file: the context of CUDA and cuBLAS, and fragmentation.
const DefaultGPUReserve = 4 << 30

// LoadSite reads the site file of src. Without one it returns the defaults. files are needed to print diagnostics.
func LoadSite(src Source) (site *Site, files map[string]*hcl.File, diags hcl.Diagnostics) {
	l := newLoader(src)
	l.site()
	return l.x.Site, l.x.Files, sortDiagnostics(l.diags)
}

// site sets l.x.Site.
func (l *loader) site() {
	site := &Site{AutoGPUs: true, Executor: "local", GPUReserve: DefaultGPUReserve}
	l.x.Site = site
	settings := siteSettings{Store: &storeBlock{Path: defaultStore}, Remote: defaultRemote()}
	site.Path = cmp.Or(l.src.Site, EnvValue(l.src.Env, "RCGRPO_SITE"))
	base := "."
	if site.Path == "" {
		if _, err := os.Stat(siteFile); err == nil {
			site.Path = siteFile
		}
	}
	if site.Path != "" {
		b := l.parseFile(site.Path)
		if b == nil {
			return
		}
		base = filepath.Dir(site.Path)
		empty := &scope{loader: l} // a site file has no variables and no stages
		empty.decode(newBody(b, "the site file", b.MissingItemRange(), nil),
			&hcl.EvalContext{Functions: pureFunctions()}, &settings)
	}
	if d := settings.Data; d != nil && d.BFCL != nil && !l.diags.HasErrors() {
		path, err := l.resolve(base, *d.BFCL)
		if err != nil {
			l.errorf(d.At["bfcl"], "No data", "data.bfcl: %s.", err)
		}
		site.BFCL = path
	}
	l.siteExecutors(settings)
	site.Remote = l.siteRemote(settings.Remote, base)
	l.siteAPIs(settings.APIs)
	if n := settings.Notify; n != nil {
		if len(n.Command) == 0 || n.Command[0] == "" {
			l.errorf(n.At["command"], "No command", "notify.command must contain a program and its arguments, "+
				"for example [\"notify-send\", \"rcgrpo\"].")
		}
		site.Notify = n.Command
	}
	site.SharedStore = settings.Store.Shared
	site.Limit = int64(settings.Store.Limit)
	if path := settings.Store.Path; path != defaultStore || EnvValue(l.src.Env, "HOME") != "" {
		resolved, err := l.resolve(base, path)
		if err != nil {
			l.errorf(settings.Store.At["path"], "No store", "store.path: %s.", err)
		}
		site.StorePath = resolved
	}
}

// checkExecutor reports an unknown name of an executor.
func (l *loader) checkExecutor(at hcl.Range, name string) {
	known := append([]string{"local"}, slices.Sorted(maps.Keys(l.x.Site.Slurm))...)
	if !slices.Contains(known, name) {
		l.errorf(at, "Unknown executor", "There is no executor %q%s; the site file may define it.", name,
			didYouMean(name, known))
	}
}

// ExecutorOf returns the name of the executor of a node. Stages that need neither tensors nor a program run on this
// machine.
func (s *Site) ExecutorOf(n *Node) string {
	if s == nil {
		return "local"
	}
	name := cmp.Or(n.Executor, s.Executor)
	if _, cluster := s.Slurm[name]; !cluster || !n.Submitted() {
		return "local"
	}
	return name
}

func (l *loader) siteExecutors(settings siteSettings) {
	site := l.x.Site
	site.Slurm = map[string]Slurm{}
	named := map[string]bool{}
	for _, e := range settings.Executors {
		if named[e.Name] {
			l.errorf(e.At[""], "Duplicate executor", "The site file already has an executor %q.", e.Name)
			continue
		}
		named[e.Name] = true
		switch cmp.Or(e.Type, e.Name) {
		case "": // a missing label is already reported
		case "slurm":
			l.onlyIn(e, localNames)
			if e.Name == "local" {
				l.errorf(e.At["type"], "Reserved name", "The executor \"local\" is this machine; choose another name.")
			}
			site.Slurm[e.Name] = l.siteSlurm(e)
		case "local":
			l.onlyIn(e, fieldNames(fieldsOf(reflect.TypeFor[slurmBlock]())))
			if e.Name != "local" {
				l.errorf(e.At["type"], "Second local executor", "The executor of this machine is named \"local\".")
			}
			l.siteLocal(e)
		default:
			at := e.At["type"]
			if e.Type == "" {
				at = e.At[""]
			}
			l.errorf(at, "Unknown executor", "There is no type %q of executors%s; there are local and slurm.",
				cmp.Or(e.Type, e.Name), didYouMean(cmp.Or(e.Type, e.Name), ExecutorTypes))
		}
	}
	if d := settings.Default; d != "" {
		l.checkExecutor(settings.At["default_executor"], d)
		site.Executor = d
	}
}

// siteLocal reads the executor of this machine.
func (l *loader) siteLocal(e executorBlock) {
	site := l.x.Site
	site.CPUs = int(e.CPUs)
	site.Memory = int64(e.Memory)
	if e.GPUs != nil {
		l.siteGPUs(e)
	}
	if e.GPUTokens < 0 {
		l.errorf(e.At["gpu_tokens_per_second"], "Bad number", "gpu_tokens_per_second must be above 0; got %v.",
			e.GPUTokens)
	}
	site.GPUReserve = int64(e.GPUReserve)
	site.GPUMemory = int64(e.GPUMemory)
	site.GPUTokens = e.GPUTokens
}

func (l *loader) siteAPIs(apis []apiBlock) {
	l.x.Site.APIs = map[string]API{}
	for _, a := range apis {
		if _, twice := l.x.Site.APIs[a.Key]; twice {
			l.errorf(a.At[""], "Duplicate API key", "The site file already has a block api %q.", a.Key)
		}
		if a.RequestsPerMinute < 0 || a.TokensPerMinute < 0 {
			l.errorf(a.At[""], "Bad number", "The rates of api %q must be at least 0.", a.Key)
		}
		for model, p := range a.Prices {
			if len(p) != 2 || p[0] < 0 || p[1] < 0 {
				l.errorf(a.At["prices"], "Bad price", "The price of %s must be a list of two numbers of at least 0: the dollars "+
					"for a million tokens of input and of output.", model)
			}
		}
		l.x.Site.APIs[a.Key] = a.API
	}
}

func (l *loader) siteGPUs(e executorBlock) {
	site := l.x.Site
	site.AutoGPUs = false
	site.GPUs = []string{}
	for _, id := range e.GPUs {
		text, isText := strings.CutPrefix(string(id), `"`)
		text = strings.TrimSuffix(text, `"`)
		_, err := strconv.ParseUint(text, 10, 32)
		badText := text == "" || strings.ContainsAny(text, ", ")
		switch {
		case badText || !isText && err != nil:
			l.errorf(e.At["gpus"], "Wrong type", "gpus must be a list of device IDs, such as [0, 1] or [\"GPU-…\"].")
		case slices.Contains(site.GPUs, text):
			l.errorf(e.At["gpus"], "Duplicate device", "Device %s occurs twice in gpus; remove one.", text)
		default:
			site.GPUs = append(site.GPUs, text)
		}
	}
}

// Remote is the remote block of the site file: a store that machines share. No key depends on it.
type Remote struct {
	Name string `hcl:"name,label"`
	// yes: after each commit; ask: only store push; no: store push is refused, too
	Push string `hcl:"push,optional" choices:"ask|yes|no"`
	// transfers at once
	Parallel int `hcl:"parallel,optional"`
	// limit of a transfer without progress
	Deadline time.Duration `hcl:"deadline,optional"`

	Folder string // absolute path; "": S3
	S3     *S3    // nil: a folder
	Pull   bool   // runs fetch results
}

// S3 is a bucket of S3-compatible storage, or the part of one below a prefix.
type S3 struct {
	Host   string // with a port, unless it is that of the scheme
	TLS    bool
	Region string // "": the storage is asked
	Bucket string
	Prefix string // "", or ends with a slash
}

type remoteBlock struct {
	Remote
	// a folder, or s3://BUCKET/PREFIX?endpoint=URL&region=NAME
	URL string `hcl:"url"`
	// whether runs fetch results
	Pull string `hcl:"pull,optional" choices:"yes|no"`

	At map[string]hcl.Range `hcl:",ranges"`
}

func defaultRemote() *remoteBlock {
	return &remoteBlock{Pull: "yes", Remote: Remote{Push: "ask", Parallel: 16, Deadline: time.Minute}}
}

// plainName reports whether a remote may have a name, which is part of file names.
func plainName(name string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	return name != "" && len(name) <= 64 && strings.Trim(name, letters+"._-") == "" &&
		strings.Trim(name[:1], letters) == ""
}

// siteRemote returns the remote of a block, or nil without one. base is the folder of the site file.
func (l *loader) siteRemote(b *remoteBlock, base string) *Remote {
	if b.Name == "" || l.diags.HasErrors() { // no block, or a mistake that is already reported
		return nil
	}
	r := &b.Remote
	r.Pull = b.Pull == "yes"
	if !plainName(b.Name) {
		l.errorf(b.At["name"], "Bad name", "The name of a remote has letters, digits, \".\", \"_\" and \"-\"; got %q.",
			b.Name)
	}
	l.remoteLimits(b)
	if strings.Contains(b.URL, "://") {
		var err error
		if r.S3, err = parseS3(b.URL); err != nil {
			l.errorf(b.At["url"], "Bad storage", "url must be a folder, or s3://BUCKET/PREFIX?endpoint=URL&region=NAME; %s.",
				err)
		}
	} else {
		path, err := l.resolve(base, b.URL)
		if err != nil {
			l.errorf(b.At["url"], "No folder", "remote.url: %s.", err)
		}
		r.Folder = filepath.Clean(path)
	}
	return r
}

// amazon serves buckets without an endpoint.
const amazon = "https://s3.amazonaws.com"

// parseS3 reads s3://BUCKET/PREFIX?endpoint=URL&region=NAME. Only the bucket is required.
func parseS3(text string) (*S3, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("it is not a URL")
	}
	q := u.Query()
	endpoint, err := url.Parse(cmp.Or(q.Get("endpoint"), amazon))
	if err != nil {
		return nil, errors.New("endpoint is not a URL")
	}
	s := &S3{Host: endpoint.Host, TLS: endpoint.Scheme == "https", Region: q.Get("region"), Bucket: u.Host}
	if prefix := strings.Trim(u.Path, "/"); prefix != "" {
		s.Prefix = prefix + "/"
	}
	q.Del("endpoint")
	q.Del("region")
	switch {
	case u.Scheme != "s3":
		return nil, fmt.Errorf("got %q", u.Scheme+"://")
	case u.User != nil || endpoint.User != nil:
		return nil, errors.New("credentials belong in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or in ~/.aws")
	case s.Bucket == "" || strings.Contains(s.Bucket, ":"):
		return nil, fmt.Errorf("%q is not a bucket", s.Bucket)
	case len(q) > 0:
		return nil, fmt.Errorf("unknown parameter %q", slices.Sorted(maps.Keys(q))[0])
	case s.Host == "" || !s.TLS && endpoint.Scheme != "http" || strings.Trim(endpoint.Path, "/") != "":
		return nil, fmt.Errorf("endpoint %q is not such as https://s3.example.org", endpoint)
	}
	return s, nil
}

// remoteLimits reports values that are too small or too large.
func (l *loader) remoteLimits(b *remoteBlock) {
	if b.Deadline < time.Second {
		l.errorf(b.At["deadline"], "Bad value", "deadline must be at least 1s; got %v.", b.Deadline)
	}
	if b.Parallel < 1 || b.Parallel > 256 {
		l.errorf(b.At["parallel"], "Bad value", "parallel must be from 1 to 256; got %d.", b.Parallel)
	}
}

// Slurm contains the settings of an executor of type "slurm". No key depends on it.
type Slurm struct {
	Name   string
	CPUs   int   // of a stage that names none
	Memory int64 // of a stage that names none, in bytes
	// slurm: hosts that get no job
	Exclude string `hcl:"exclude,optional"`
	// slurm: further options of sbatch
	Options []string `hcl:"extra,optional"` // with those of partition, account and so on (siteSlurm)

	// slurm: name of devices, which may have a type: "gpu:h200"
	GRES string `hcl:"gres,optional"`
	// slurm: limit of stages that have never run
	Time time.Duration `hcl:"time,optional"`
	// slurm: limit of other stages, in expected times
	Factor float64 `hcl:"factor,optional"`
	// slurm: a stage is asked to stop so long before its limit, and continues in a new job; "0s": it is not asked
	Checkpoint time.Duration `hcl:"checkpoint,optional"`
	// slurm: starts after time limits
	Continues int `hcl:"continues,optional"`
	// slurm: starts after preemption or a lost host, beside those of retry
	FreeAttempts int `hcl:"free_attempts,optional"`
	// slurm: jobs in the queue or running
	Jobs int `hcl:"jobs,optional"`
	// slurm: Slurm starts preempted jobs again, also while no engine runs; without it the engine submits a new job
	Requeue bool `hcl:"requeue,optional"`
	// slurm: least interval of status calls
	Poll time.Duration `hcl:"poll,optional"`
	// slurm: limit of each command of Slurm
	Deadline time.Duration `hcl:"deadline,optional"`
	// slurm: a job not listed for so long has ended
	Grace time.Duration `hcl:"grace,optional"`
	// slurm: until files of a host are seen
	Visible time.Duration `hcl:"visible,optional"`
	// slurm: time after which a silent host is lost
	Lost time.Duration `hcl:"lost,optional"`
	// slurm: lines of sh before the program, such as module load
	Setup []string `hcl:"setup,optional"`
	// slurm: variables of jobs, which Slurm stores
	Env map[string]string `hcl:"env,optional"`
	// slurm: files of mode 0600 with the values of variables, read on the host
	Secrets map[string]string `hcl:"secrets,optional"`
	// slurm: folder of Slurm's commands; default: found in PATH
	Path string `hcl:"path,optional"`
}

// slurmBlock are the settings of an executor block of type "slurm".
type slurmBlock struct {
	// slurm: of all jobs
	Partition string `hcl:"partition,optional"`
	// slurm: charged for the jobs
	Account string `hcl:"account,optional"`
	// slurm: quality of service
	QOS string `hcl:"qos,optional"`
	// slurm: features that hosts must have
	Constraint string `hcl:"constraint,optional"`
	// slurm: reservation of the jobs
	Reservation string `hcl:"reservation,optional"`
	Slurm
}

func defaultSlurm() Slurm {
	return Slurm{CPUs: 1, Memory: 4e9, GRES: "gpu", Time: 4 * time.Hour, Factor: 2, Checkpoint: 3 * time.Minute,
		Continues: 100, FreeAttempts: 20, Jobs: 200, Poll: 10 * time.Second,
		Deadline: time.Minute, Grace: 5 * time.Minute, Visible: 90 * time.Second, Lost: 2 * time.Minute}
}

// localNames are the settings that only the executor of this machine has; those of slurmBlock are of Slurm only.
var localNames = []string{"gpus", "gpu_reserve", "gpu_memory", "gpu_tokens_per_second"}

// siteSlurm reads an executor of type "slurm".
func (l *loader) siteSlurm(e executorBlock) Slurm {
	s := e.Slurm
	s.Name = e.Name
	s.CPUs = cmp.Or(int(e.CPUs), s.CPUs)
	s.Memory = cmp.Or(int64(e.Memory), s.Memory)
	s.Options = nil
	named := []struct{ name, value string }{{"partition", e.Partition}, {"account", e.Account}, {"qos", e.QOS},
		{"constraint", e.Constraint}, {"reservation", e.Reservation}}
	for _, o := range named {
		if o.value != "" {
			s.Options = append(s.Options, "--"+o.name+"="+o.value)
		}
	}
	s.Options = append(s.Options, e.Options...)
	l.slurmLimits(e, s)
	base := filepath.Dir(l.x.Site.Path)
	path := func(at hcl.Range, path string) string {
		resolved, err := l.resolve(base, path)
		if err != nil {
			l.errorf(at, "No path", "The path cannot be resolved: %s.", err)
		}
		return resolved
	}
	for name, file := range s.Secrets {
		s.Secrets[name] = path(e.At["secrets"], file)
	}
	if s.Path != "" {
		s.Path = path(e.At["path"], s.Path)
	}
	return s
}

// slurmLimits reports values of an executor of type "slurm" that are out of range.
func (l *loader) slurmLimits(e executorBlock, s Slurm) {
	for _, v := range []struct {
		at           hcl.Range
		name         string
		value, least time.Duration
	}{
		{e.At["time"], "time", s.Time, time.Minute},
		{e.At["poll"], "poll", s.Poll, time.Second},
		{e.At["deadline"], "deadline", s.Deadline, time.Second},
		{e.At["grace"], "grace", s.Grace, time.Second},
		{e.At["visible"], "visible", s.Visible, time.Second},
		{e.At["lost"], "lost", s.Lost, time.Second},
	} {
		if v.value < v.least {
			l.errorf(v.at, "Bad value", "%s must be at least %v; got %v.", v.name, v.least, v.value)
		}
	}
	if s.Memory < 1<<20 { // sbatch takes 0 for all of it
		l.errorf(e.At["memory"], "Bad value", "memory must be at least 1MiB; got %d bytes.", s.Memory)
	}
	if s.Factor < 1 {
		l.errorf(e.At["factor"], "Bad value", "factor must be at least 1; got %v.", s.Factor)
	}
	if s.Checkpoint < 0 || s.Continues < 0 || s.FreeAttempts < 0 || s.Jobs < 1 {
		l.errorf(e.At[""], "Bad value", "checkpoint, continues and free_attempts must not be negative, and jobs must be at "+
			"least 1.")
	}
	for _, option := range e.Options {
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

// ParseBytes parses a size such as "200GB" or "1.5 GiB": kB, MB, GB, TB are powers of 1000, KiB … TiB of 1024.
func ParseBytes(text string) (int64, error) {
	n, err := humanize.ParseBytes(text)
	if err != nil || !strings.HasSuffix(text, "B") || n > 1<<62 {
		return 0, fmt.Errorf("%q is not a size; write a number and a unit, such as 200GB", text)
	}
	return int64(n), nil
}

// BytesText formats a size with three digits and a decimal unit: "1.5 MB".
func BytesText(n int64) string {
	size, units := float64(n), []string{"B", "kB", "MB", "GB", "TB"}
	for len(units) > 1 && size >= 1000 {
		size, units = size/1000, units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.3g %s", size, units[0])
}

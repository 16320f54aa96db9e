package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"rcgrpo/engine"
	"rcgrpo/stages"
)

// server is what stages.Serving is in the binary with tensors. In the other one it has settings only.
type server interface{ Run(context.Context) error }

func serveCommand() *cobra.Command {
	c := newExperimentCommand("serve CHECKPOINT [EXP]", "Serve a policy to clients of OpenAI's API",
		wantArgs(1, 2, "want the folder of a checkpoint or of a Hugging Face model, a GGUF file, or an address with "+
			"port, such as rc-grpo.arm[sft]@1.checkpoint, and optionally an experiment"))
	c.Long = "Serve a policy to clients of OpenAI's API, and print the base URL. ^C or SIGTERM ends the server after\n" +
		"the replies in progress. CHECKPOINT is the address of a stage with its port, such as " +
		"rc-grpo.arm[sft]@1.checkpoint,\nor a folder: a checkpoint, or a Hugging Face model, which has no reward token; or " +
		"a GGUF file, which is\nimported into $TMPDIR. `rcgrpo check PATH` reports whether a model can be served."
	s := &stages.Serving{}
	keyEnv := ""
	f := c.Flags()
	f.StringVar(&s.Listen, "listen", "127.0.0.1:0", "listen on `HOST:PORT`; port 0 is any")
	f.StringVar(&keyEnv, "key-env", "", "require the API key in the variable `NAME`; necessary beyond loopback")
	f.StringVar(&s.Name, "name", "", "`NAME` of the model (default: CHECKPOINT, which remains valid too)")
	f.StringVar(&s.Layout, "layout", "", "chat layout `NAME` in place of the template of a folder or GGUF file: "+
		strings.Join(stages.LayoutNames(), ", "))
	f.StringVar(&s.Token, "token", "checkpoint", "reward token of requests without one: checkpoint, high, low or none")
	f.StringVar(&s.Device, "device", "cpu", "cpu or cuda")
	f.IntVar(&s.Threads, "threads", 0, "compute with `N` threads of the CPU (default: OMP_NUM_THREADS, or all)")
	f.StringVar(&s.Precision, "precision", "float32", "float32 or bf16")
	f.IntVar(&s.Slots, "slots", 64, "sample `N` replies at once")
	f.IntVar(&s.Context, "context", 0, "limit prompt and reply to `N` tokens (default: the model's maximum, at most 8192)")
	f.IntVar(&s.Queue, "queue", 256, "let `N` more replies wait; further requests get status 429")
	f.Int64Var(&s.MaxBody, "max-body", 8<<20, "refuse requests above `N` bytes")
	f.DurationVar(&s.Timeout, "timeout", 10*time.Minute, "end a request after `TIME`")
	f.DurationVar(&s.Drain, "drain", 30*time.Second, "after SIGTERM give replies in progress `TIME`")
	f.StringVar(&s.Record, "log", "", "append a trajectory per conversation to trajectories.jsonl.gz in the folder `DIR`")
	return c.does(func(args []string) error {
		if s.Slots < 1 || s.MaxBody < 1 || s.Timeout <= 0 || min(s.Queue, s.Context, s.Threads, int(s.Drain)) < 0 {
			return misuse("--slots, --max-body and --timeout must be above 0, the other numbers at least 0")
		}
		serving, ok := any(s).(server)
		if !ok {
			return becomeTorchBinary("servers")
		}
		if keyEnv != "" {
			if s.Key = os.Getenv(keyEnv); strings.TrimSpace(s.Key) == "" {
				return fmt.Errorf("--key-env %s: the variable is not set, or blank", keyEnv)
			}
		}
		if s.Name != "" {
			s.Aliases = []string{args[0]}
		} else {
			s.Name = args[0]
		}
		var err error
		if s.Dir, err = c.checkpointFolder(args); err != nil {
			return err
		}
		worksForOthers()
		cpus, memory := engine.Host()
		given, _ := strconv.Atoi(os.Getenv("OMP_NUM_THREADS")) // the share of a stage that starts the server
		s.Out, s.Log, s.Memory, s.Threads = c.stdout(), c.stderr(), memory, cmp.Or(s.Threads, max(0, given), cpus)
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return serving.Run(ctx)
	})
}

// becomeTorchBinary replaces this process by the binary with tensors and the same command line.
func becomeTorchBinary(who string) error {
	path, err := engine.TorchBinary(who)
	if err != nil {
		return err
	}
	return syscall.Exec(path, append([]string{path}, os.Args[1:]...), os.Environ())
}

// checkpointFolder returns the folder of a checkpoint or model, given as a path or as the address of a port, or the
// path of a GGUF file.
func (c *command) checkpointFolder(args []string) (string, error) {
	info, err := os.Stat(args[0])
	if err == nil && (info.IsDir() || stages.IsModelFile(args[0])) {
		return filepath.Clean(args[0]), nil
	}
	if err == nil {
		return "", fmt.Errorf("%s is a file; serve reads the folder of a checkpoint or model, or a file *.gguf", args[0])
	}
	if strings.ContainsRune(args[0], filepath.Separator) && !strings.ContainsRune(args[0], '[') {
		return "", fmt.Errorf("there is no folder %s", args[0])
	}
	x, store, err := c.open(strings.Join(args[1:], ""))
	if err != nil {
		return "", err
	}
	a, err := openArtifact(x, store, args[0])
	if err != nil {
		return "", err
	}
	if a.Type != "checkpoint" {
		return "", fmt.Errorf("%s is of type %s, not checkpoint", args[0], a.Type)
	}
	return a.Dir, nil
}

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"rcgrpo/bfcl"
	"rcgrpo/bfcl/drill"
	"rcgrpo/engine"
	"rcgrpo/stages"
)

func serveCommand() *cobra.Command {
	c := newExperimentCommand("serve CHECKPOINT [EXP]", "Serve a policy to clients of OpenAI's API",
		wantArgs(1, 2, "want the folder of a checkpoint, or its address with port, such as "+
			"rc-grpo.arm[sft]@1.checkpoint, and optionally an experiment"))
	c.Long = "Serve a policy to clients of OpenAI's API, and print the base URL. ^C or SIGTERM ends the server after\n" +
		"the replies in progress. CHECKPOINT is a folder, or the address of a stage with its port, such as " +
		"rc-grpo.arm[sft]@1.checkpoint."
	s := &stages.Serving{}
	keyEnv := ""
	f := c.Flags()
	f.StringVar(&s.Listen, "listen", "127.0.0.1:0", "listen on `HOST:PORT`; port 0 is any")
	f.StringVar(&keyEnv, "key-env", "", "require the API key in the variable `NAME`; necessary beyond loopback")
	f.StringVar(&s.Name, "name", "", "`NAME` of the model (default: CHECKPOINT, which remains valid too)")
	f.StringVar(&s.Token, "token", "checkpoint", "reward token of requests without one: checkpoint, high, low or none")
	f.StringVar(&s.Device, "device", "cpu", "cpu or cuda")
	f.StringVar(&s.Precision, "precision", "float32", "float32 or bf16")
	f.IntVar(&s.Slots, "slots", 64, "sample `N` replies at once")
	f.IntVar(&s.Context, "context", 0, "limit prompt and reply to `N` tokens (default: the model's maximum, at most 8192)")
	f.IntVar(&s.Queue, "queue", 256, "let `N` more replies wait; further requests get status 429")
	f.Int64Var(&s.MaxBody, "max-body", 8<<20, "refuse requests above `N` bytes")
	f.DurationVar(&s.Timeout, "timeout", 10*time.Minute, "end a request after `TIME`")
	f.DurationVar(&s.Drain, "drain", 30*time.Second, "after SIGTERM give replies in progress `TIME`")
	f.StringVar(&s.Record, "log", "", "append a trajectory per conversation to trajectories.jsonl.gz in the folder `DIR`")
	return c.runs(func(args []string) error {
		if s.Slots < 1 || s.Queue < 0 || s.Context < 0 || s.MaxBody < 1 || s.Timeout <= 0 || s.Drain < 0 {
			return misuse("--slots, --max-body and --timeout must be above 0, --queue, --context and --drain not below")
		}
		server, ok := any(s).(interface{ Run(context.Context) error })
		if !ok {
			return becomeTorchBinary("servers")
		}
		if keyEnv != "" {
			if s.Key = os.Getenv(keyEnv); s.Key == "" {
				return fmt.Errorf("--key-env %s: the variable is not set", keyEnv)
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
		s.Out, s.Log = c.stdout(), c.stderr()
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return server.Run(ctx)
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

// checkpointFolder returns the folder of a checkpoint, given as a path or as the address of a port.
func (c *command) checkpointFolder(args []string) (string, error) {
	if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
		return filepath.Clean(args[0]), nil
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

func mcpCommand() *cobra.Command {
	return newGroup("mcp", "Offer the benchmark's tools to clients of the Model Context Protocol",
		mcpBFCLCommand(), mcpDrillsCommand())
}

const mcpHelp = "The server speaks on standard input and output, or over HTTP with --listen; each session has an " +
	"episode of its own.\nThe tool next_request returns the first request of the user, then the next ones; the last " +
	"call returns the verdict."

func newMCPCommand(use, short string) (c *dataCommand, listen *string) {
	c = newBFCLCommand(use, short, wantArgs(0, 0, ""))
	c.Long = c.Short + ".\n" + mcpHelp
	return c, c.Flags().String("listen", "", "serve HTTP on `HOST:PORT` of this machine, and print the URL; port 0 is any")
}

func mcpBFCLCommand() *cobra.Command {
	c, listen := newMCPCommand("bfcl", "Offer the tools of a task")
	c.Long += "\nWith --listen and neither --task nor --classes, URL/TASK is the address of " +
		"each task."
	task := c.Flags().String("task", "", "`ID` of the task")
	classes := c.Flags().StringSlice("classes", nil, "offer the tools of `CLASSES` in their first state, without requests")
	return c.runs(func([]string) error {
		if *task != "" && *classes != nil || *task == "" && *classes == nil && *listen == "" {
			return misuse("name either the task, --task ID, or classes, --classes NAME,NAME")
		}
		data, err := c.data()
		if err != nil {
			return err
		}
		return c.serveTools(stages.ToolServer{Data: data, Turns: *classes == nil, Find: func(id string) (*bfcl.Task, error) {
			if *classes != nil {
				return &bfcl.Task{ID: "classes", Classes: *classes, Turns: make([]bfcl.Turn, 1)}, nil
			}
			return findTask(data, cmp.Or(*task, id))
		}}, *listen)
	})
}

func mcpDrillsCommand() *cobra.Command {
	c, listen := newMCPCommand("drills", "Offer the tools of a generated task")
	seed := c.Flags().Int64("seed", 1, "`NUMBER` of the task: the first training drill of tasks with this seed")
	return c.runs(func([]string) error {
		data, err := c.data()
		if err != nil {
			return err
		}
		made, err := drill.Generate(engine.Rand(*seed, "drills train"), drill.Multi, drill.Train,
			fmt.Sprintf("drill_multi_%d", *seed), 1)
		if err != nil {
			return err
		}
		return c.serveTools(stages.ToolServer{Data: data, Turns: true, Find: func(string) (*bfcl.Task, error) {
			return made[0], nil
		}}, *listen)
	})
}

// serveTools serves standard input and output, or HTTP on an address, until a signal.
func (c *dataCommand) serveTools(s stages.ToolServer, listen string) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if listen != "" {
		return s.Serve(ctx, listen, c.stdout())
	}
	return s.Talk(ctx, c.InOrStdin(), c.stdout())
}

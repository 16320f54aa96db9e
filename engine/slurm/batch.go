package slurm

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	gatherFor   = 200 * time.Millisecond // in which ready stages are collected for one call of sbatch
	shortStage  = time.Minute            // a stage with a smaller expected time may share a job
	leastPacked = 16                     // jobs over which short stages are distributed, before a job gets more of them
)

// batch is stages whose jobs have equal options. One call of sbatch submits them as a job, or as an array of jobs.
type batch struct {
	*Executor
	jobs []*job
}

// submitWithOthers submits the job of an attempt together with others of equal options.
func (x *Executor) submitWithOthers(ctx context.Context, j *job) error {
	j.submitted = make(chan error, 1)
	e := j.Estimate
	j.short = x.Pack > 0 && e > 0 && e < shortStage
	if !x.Array && !j.short {
		(&batch{x, []*job{j}}).submit(ctx)
		return <-j.submitted
	}
	key := fmt.Sprintf("%t %q", j.short, j.options(j.short))
	x.mu.Lock()
	b := x.batches[key]
	if b == nil {
		b = &batch{Executor: x}
		x.batches[key] = b
		time.AfterFunc(gatherFor, func() {
			x.mu.Lock()
			delete(x.batches, key)
			x.mu.Unlock()
			b.submit(ctx)
		})
	}
	b.jobs = append(b.jobs, j)
	x.mu.Unlock()
	return <-j.submitted
}

// submit submits the batch and sends each job the outcome.
func (b *batch) submit(ctx context.Context) {
	tasks, size := b.tasks(), 1
	if b.Array && len(tasks) > 1 {
		size = max(1, b.largest()) // 1: unknown, or the cluster has no arrays
	}
	for tasks := range slices.Chunk(tasks, size) {
		go b.submitTasks(ctx, tasks)
	}
}

// tasks distributes the stages over jobs. Each stage has its own job, but short ones share jobs whose expected time is
// about Pack.
func (b *batch) tasks() [][]*job {
	count := len(b.jobs)
	if b.jobs[0].short {
		count = min(count, max(leastPacked, int((expected(b.jobs)+b.Pack-1)/b.Pack)))
	}
	tasks := make([][]*job, count)
	for i, j := range b.jobs {
		tasks[i%count] = append(tasks[i%count], j)
	}
	return tasks
}

// submitTasks creates the records of the stages and submits their jobs, which are an array if there are several. A
// stage whose record exists gets fs.ErrExist.
func (b *batch) submitTasks(ctx context.Context, tasks [][]*job) {
	first := tasks[0][0]
	a := &array{batch: b, name: newName(first.attempt.Key), tasks: make([][]*job, len(tasks))}
	var words, addresses []string
	var indexes []int
	for i, task := range tasks {
		words = append(words, nextTask)
		for _, j := range task {
			j.Name, j.Behind = a.name, len(a.tasks[i]) > 0
			if len(tasks) > 1 {
				j.Name += "_" + strconv.Itoa(i)
			}
			if len(b.jobs) > 1 {
				j.Out = j.Run.Path("nodes", j.Name+".out")
			}
			if err := j.create(); err != nil {
				j.submitted <- err
				continue
			}
			a.tasks[i] = append(a.tasks[i], j)
			words, addresses = append(words, quote(j.path)), append(addresses, j.attempt.Address)
		}
		if len(a.tasks[i]) > 0 {
			indexes = append(indexes, i)
		}
	}
	if len(indexes) == 0 {
		return
	}
	program := quote(first.program) + " job " + strings.Join(words[1:], " ")
	if nodesOf(first.Node) > 1 { // a process per node
		program = fmt.Sprintf("%s --kill-on-bad-exit=1 --ntasks-per-node=1 --cpus-per-task=%d --cpu-bind=none --mpi=none %s",
			quote(filepath.Join(b.Path, "srun")), b.cpusPerNode(first.Node), program)
	}
	a.script = strings.Join(append(append([]string{"#!/bin/sh"}, b.Setup...), "exec "+program, ""), "\n")
	a.args = a.options(first, addresses)
	a.submit(ctx, indexes)
}

// array is jobs that are submitted together.
type array struct {
	*batch
	name, script string
	args         []string
	tasks        [][]*job // the stages of each job; a stage that was not created is missing
}

// options returns the options of sbatch, except for the indexes.
func (a *array) options(first *job, addresses []string) []string {
	comment, out := addresses[0], first.output()
	if len(addresses) > 1 {
		comment = fmt.Sprintf("%s and %d more", comment, len(addresses)-1)
	}
	if len(a.tasks) > 1 {
		out = first.Run.Path("nodes", a.name+"_%a.out")
	}
	args := append(first.options(first.short), "--parsable", "--job-name="+a.name, "--comment="+comment,
		"--open-mode=append", "--chdir="+first.Store, "--output="+out)
	if !first.short {
		return args
	}
	var longest time.Duration
	for _, task := range a.tasks {
		longest = max(longest, expected(task))
	}
	return append(args, timeOptions(a.timeLimit(longest, 0))...)
}

// expected returns the expected time of stages one after the other.
func expected(jobs []*job) (total time.Duration) {
	for _, j := range jobs {
		total += j.Estimate
	}
	return total
}

// submit calls sbatch until Slurm accepts the jobs of these indexes, may have accepted them, or refuses them for good.
// A limit of submitted jobs refuses an array as a whole, so the array is divided then.
func (a *array) submit(ctx context.Context, indexes []int) {
	args, index := a.args, func(i int) string { return "" }
	if len(a.tasks) > 1 {
		args = append(args[:len(args):len(args)], "--array="+ranges(indexes))
		index = func(i int) string { return "_" + strconv.Itoa(i) }
	}
	each := func(f func(j *job, index string)) {
		for _, i := range indexes {
			for _, j := range a.tasks[i] {
				f(j, index(i))
			}
		}
	}
	for wait := 3 * a.Poll; ; wait = min(2*wait, 5*time.Minute) {
		id, err := a.sbatch(ctx, a.script, args)
		switch {
		case err == nil:
			each(func(j *job, index string) {
				j.id, j.confirmed = id+index, true
				j.queued(fmt.Sprintf("job %s of Slurm is submitted", j.id))
				j.submitted <- nil
			})
			return
		case errors.Is(err, errUncertain):
			each(func(j *job, _ string) {
				j.note("%v", err)
				j.submitted <- nil
			})
			return
		case !errors.Is(err, errNotNow):
			err = fmt.Errorf("the job is refused by Slurm: %w", err)
			each(func(j *job, _ string) {
				refused := err
				if j.why != "" {
					refused = fmt.Errorf("%w; before, %s", err, j.why)
				}
				j.submitted <- errors.Join(refused, os.Remove(j.path))
			})
			return
		case len(indexes) > 1:
			for half := range slices.Chunk(indexes, (len(indexes)+1)/2) {
				go a.submit(ctx, half)
			}
			return
		}
		each(func(j *job, _ string) { j.queued(err.Error()) })
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			each(func(j *job, _ string) { j.submitted <- errors.Join(context.Cause(ctx), os.Remove(j.path)) })
			return
		}
	}
}

// ranges returns increasing indexes as sbatch reads them: "0-3,7".
func ranges(indexes []int) string {
	var parts []string
	for i := 0; i < len(indexes); {
		end := i
		for end+1 < len(indexes) && indexes[end+1] == indexes[end]+1 {
			end++
		}
		if parts = append(parts, strconv.Itoa(indexes[i])); end > i {
			parts[len(parts)-1] += "-" + strconv.Itoa(indexes[end])
		}
		i = end + 1
	}
	return strings.Join(parts, ",")
}

// timeOptions are the options of sbatch for a time limit and a request to stop before it.
func timeOptions(limit, checkpoint time.Duration) []string {
	args := []string{fmt.Sprintf("--time=%d", int(math.Ceil(limit.Minutes())))}
	if checkpoint > 0 {
		args = append(args, fmt.Sprintf("--signal=B:USR1@%d", int(checkpoint.Seconds())))
	}
	return args
}

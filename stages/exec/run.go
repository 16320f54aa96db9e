package exec

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/proc"
)

// Run executes the command in an empty folder and collects its outputs.
func (s *settings) Run(ctx context.Context, job *engine.Job) error {
	dir := job.Dir
	if !job.Recovered() {
		if job.Resumes() { // after an attempt that failed
			if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700)); err != nil {
				return err
			}
		}
		for _, to := range s.Outputs {
			folder := filepath.Join(dir, filepath.FromSlash(to))
			if !strings.HasSuffix(to, "/") {
				folder = filepath.Dir(folder)
			}
			if err := os.MkdirAll(folder, 0o700); err != nil {
				return err
			}
		}
	}
	env, err := s.environment(job, dir)
	if err != nil {
		return err
	}
	program := engine.Program{Args: s.Command, Env: env, Dir: dir}
	secrets := map[string]*proc.Secrets{}
	for _, name := range s.Secrets {
		value, ok := os.LookupEnv(name)
		if !ok {
			return fmt.Errorf("the environment has no variable %s, which the stage names as a secret", name)
		}
		program.Env = append(program.Env, name+"="+value)
		program.Secret = append(program.Secret, value)
		secrets[name] = proc.NewSecrets(value)
	}
	if err := job.RunProgram(ctx, program); err != nil {
		return err
	}
	for _, port := range slices.Sorted(maps.Keys(s.Outputs)) {
		if err := s.collect(job, dir, port, secrets); err != nil {
			return fmt.Errorf("output %s: %w", port, err)
		}
	}
	return nil
}

func (s *settings) environment(job *engine.Job, dir string) ([]string, error) {
	env := []string{
		fmt.Sprintf("OMP_NUM_THREADS=%d", job.Threads),
		"CUDA_DEVICE_ORDER=PCI_BUS_ID",
		"CUDA_VISIBLE_DEVICES=" + strings.Join(job.GPUs, ","),
		"PWD=" + dir,
	}
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	if s.Draws {
		env = append(env, fmt.Sprintf("RCGRPO_SEED=%d", job.Seed))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Inputs)) {
		in, err := inputPath(job, s.Inputs[name])
		if err != nil {
			return nil, fmt.Errorf("input %s: %w", name, err)
		}
		env = append(env, name+"="+in)
	}
	for _, port := range slices.Sorted(maps.Keys(s.Outputs)) {
		env = append(env, port+"="+filepath.Join(dir, filepath.FromSlash(s.Outputs[port])))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) { // later ones win
		env = append(env, name+"="+s.Env[name])
	}
	return env, nil
}

func inputPath(job *engine.Job, in artifact.Data) (string, error) {
	if in.Ref.Kind == "" {
		return in.File.Path, nil
	}
	opened, err := job.Open(in.Ref)
	if err != nil {
		return "", err
	}
	if only, ok := opened.Only(); ok && opened.Type == "files" {
		return only, nil
	}
	return opened.Dir, nil
}

func (s *settings) collect(job *engine.Job, dir, port string, secrets map[string]*proc.Secrets) error {
	to := s.Outputs[port]
	if name := secretIn(to, secrets); name != "" {
		return fmt.Errorf("its path contains the value of the secret %s, and paths are stored and printed: give it "+
			"another one", name)
	}
	for folder := path.Dir(path.Clean(to)); folder != "."; folder = path.Dir(folder) {
		if info, err := os.Lstat(filepath.Join(dir, filepath.FromSlash(folder))); err == nil && !info.IsDir() {
			return fmt.Errorf("%s is %s, and a result holds plain files only", folder, artifact.Form(info.Mode().Type()))
		}
	}
	made := filepath.Join(dir, filepath.FromSlash(to))
	info, err := os.Lstat(made)
	switch {
	case os.IsNotExist(err):
		return fmt.Errorf("the command ended well and left no %s", to)
	case err != nil:
		return err
	case strings.HasSuffix(to, "/") && !info.IsDir():
		return fmt.Errorf("%s is no folder", to)
	case !info.IsDir() && !info.Mode().IsRegular():
		return fmt.Errorf("%s is neither a file nor a folder but %s", to, artifact.Form(info.Mode().Type()))
	}
	err = filepath.WalkDir(made, func(at string, d fs.DirEntry, err error) error {
		if name := secretIn(strings.TrimPrefix(at, made), secrets); name != "" {
			return fmt.Errorf("the name of a file in %s contains the value of the secret %s, and names are stored and "+
				"printed: choose another name", to, name)
		}
		if err != nil || d.IsDir() {
			return err
		}
		file, err := filepath.Rel(filepath.Dir(made), at)
		if err != nil {
			return err
		}
		file = filepath.ToSlash(file)
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is %s, and a result holds plain files only", path.Join(path.Dir(path.Clean(to)), file),
				artifact.Form(d.Type()))
		}
		return nil
	})
	if err != nil {
		return err
	}
	return putInto(job, port, made)
}

// secretIn returns the variable whose secret value a text contains, or "".
func secretIn(text string, secrets map[string]*proc.Secrets) string {
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		if secrets[name].Mask(text) != text {
			return name
		}
	}
	return ""
}

// putInto moves an output into the folder of its port, or takes its folder as the port if it contains nothing
// else.
func putInto(job *engine.Job, port, made string) error {
	dir := filepath.Dir(made)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if len(entries) == 1 && dir != job.Dir {
		return job.Take(port, dir)
	}
	created, err := job.Create(port)
	if err != nil {
		return err
	}
	return os.Rename(made, filepath.Join(created, filepath.Base(made)))
}

package environment

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"rcgrpo/engine/artifact"
)

// Files of a tasks artifact whose tasks belong to a program.
const (
	ProgramFile   = "environment.json" // Description
	ProgramFolder = "program"          // the program's folder
)

// Description holds what starts a program, or reaches a server. Times are in nanoseconds.
type Description struct {
	Command    []string          `json:"command"` // words; the first is found in PATH or in the folder
	Env        map[string]string `json:"env,omitempty"`
	Secrets    []string          `json:"secrets,omitempty"`    // names of variables of the engine's environment
	Start      time.Duration     `json:"start"`                // limit of the start of a process, hello and tasks
	Step       time.Duration     `json:"step"`                 // limit of reset, step and close
	Score      time.Duration     `json:"score"`                // limit of score
	Executable []string          `json:"executable,omitempty"` // files of the folder that may be executed
	Server     *Server           `json:"server,omitempty"`     // nil: the program speaks the protocol of Processes
}

// ReadDescription reads the description in the folder of a tasks artifact.
func ReadDescription(dir string) (*Description, error) {
	a := artifact.Artifact{Dir: dir}
	text, err := a.Read(ProgramFile)
	if err != nil {
		return nil, err
	}
	p := new(Description)
	if err := json.Unmarshal(text, p); err != nil {
		return nil, fmt.Errorf("%s: %w", a.Path(ProgramFile), err)
	}
	return p, nil
}

// StartsAs reports whether two descriptions start the same processes and reach the same servers. The tools of a server
// and the modes of files are not compared, because they are found when the tasks are made.
func (p *Description) StartsAs(other *Description) bool { return p.started() == other.started() }

// started returns what StartsAs compares, as text.
func (p Description) started() string {
	p.Executable = nil
	if p.Server != nil {
		server := *p.Server
		server.Tools, p.Server = nil, &server
	}
	text, _ := json.Marshal(p) // has no field that cannot be marshalled
	return string(text)
}

// Write writes the description, and the program's folder without the files and folders of the names left out, into a
// tasks artifact.
func (p *Description) Write(dir, folder string, left []string) error {
	to := filepath.Join(dir, ProgramFolder)
	p.Executable = nil
	files := 0
	err := eachFile(folder, left, func(name string, info fs.FileInfo) error {
		files++
		if info.Mode()&0o111 != 0 {
			p.Executable = append(p.Executable, filepath.ToSlash(name))
		}
		return copyFile(filepath.Join(folder, name), filepath.Join(to, name), 0o600)
	})
	if err != nil {
		return err
	}
	if files == 0 {
		return fmt.Errorf("the program's folder %s has no file", folder)
	}
	return p.Save(dir)
}

// Save writes the description alone.
func (p *Description) Save(dir string) error {
	return artifact.WriteJSON(dir, ProgramFile, p)
}

// Copy copies the program of a tasks artifact into a new folder below scratch and returns it. Its files are
// read-only, unless it is a server, which has a copy in each session.
func (p *Description) Copy(dir, scratch string) (string, error) {
	from := filepath.Join(dir, ProgramFolder)
	to, err := os.MkdirTemp(scratch, "program-")
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(from); p.Server != nil && errors.Is(err, fs.ErrNotExist) {
		return to, nil
	}
	return to, eachFile(from, nil, func(name string, _ fs.FileInfo) error {
		mode := fs.FileMode(0o444)
		if slices.Contains(p.Executable, filepath.ToSlash(name)) {
			mode = 0o555
		}
		if p.Server != nil {
			mode |= 0o200
		}
		return copyFile(filepath.Join(from, name), filepath.Join(to, name), mode)
	})
}

// eachFile calls f with the relative name of every file below dir, except below the names left out. Links to files
// are followed.
func eachFile(dir string, left []string, f func(name string, info fs.FileInfo) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path != dir && slices.Contains(left, d.Name()) {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if d.IsDir() {
			return nil
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return fmt.Errorf("%s: a program's folder contains plain files only", path)
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return f(name, info)
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return err
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, mode)
}

// environ returns the variables of a process that starts in dir.
func (p *Description) environ(dir string) ([]string, error) {
	env := []string{"PWD=" + dir}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "OMP_NUM_THREADS"} {
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	for name, value := range p.Env { // later ones win
		env = append(env, name+"="+value)
	}
	for _, name := range p.Secrets {
		value, ok := os.LookupEnv(name)
		if !ok {
			return nil, fmt.Errorf("the environment has no variable %s, which the tasks name as a secret of their program",
				name)
		}
		env = append(env, name+"="+value)
	}
	return env, nil
}

// secretValues returns the values of the secrets, and the tokens of those like "Bearer TOKEN".
func (p *Description) secretValues() (values []string) {
	names := slices.Clone(p.Secrets)
	if p.Server != nil {
		names = slices.AppendSeq(names, maps.Values(p.Server.Headers))
	}
	for _, name := range names {
		value := os.Getenv(name)
		values = append(values, value)
		if _, token, _ := strings.Cut(value, " "); len(token) >= 8 { // a shorter one may be in ordinary text
			values = append(values, token)
		}
	}
	return values
}

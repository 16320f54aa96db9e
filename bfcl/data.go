package bfcl

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"rcgrpo/bfcl/internal/api"
	"rcgrpo/bfcl/internal/py"
)

// Version is the release of the official package that this package reproduces.
const Version = "2026.3.23"

// dataDigest is the SHA-256 of the concatenated SHA-256 digests of the official files of Version, in the order in
// which LoadData reads them.
const dataDigest = "f5a66194af07cca4970da9c6c7da2bd0c3668270cf463ef98bd97825be372ee5"

// Data is the official benchmark: its tasks, the documentation of its tools and the texts of the
// long-context category. It is safe for concurrent use.
type Data struct {
	tasks  []*Task
	byID   map[string]*Task
	docs   map[string][]ToolDoc // name of a class -> documents of its tools, in official order
	long   map[string]py.Value  // constants of long_context.json by name
	digest string               // as dataDigest, in hexadecimal

	worlds     sync.Map // cache, *Task -> *world
	worldBytes atomic.Int64
}

// ToolDoc is the official description of one tool.
type ToolDoc struct {
	Name string
	JSON json.RawMessage // the whole document, unchanged
}

// Tasks returns the valid tasks in official order.
func (d *Data) Tasks() []*Task { return d.tasks }

// Task returns the task with that id, or nil.
func (d *Data) Task(id string) *Task { return d.byID[id] }

// Docs returns the tool documents of one class in official order.
func (d *Data) Docs(class string) []ToolDoc { return d.docs[class] }

// IsVersion returns an error unless the data is byte-identical to release v.
func (d *Data) IsVersion(v string) error {
	if v != Version {
		return fmt.Errorf("unknown benchmark version %q; this program implements %q", v, Version)
	}
	if d.digest != dataDigest {
		return fmt.Errorf("the benchmark data is not version %s: got SHA-256 %s, want %s; "+
			"unpack it again with `make build`", v, d.digest, dataDigest)
	}
	return nil
}

// Fault is one error in the data files.
type Fault struct {
	File  string // path
	Line  int    // 1-based; 0 for the whole file
	Field string // "question[2][0].content"; "" for the whole line
	Text  string // the value found and the value expected
}

func (f Fault) Error() string {
	var b strings.Builder
	b.WriteString(f.File)
	if f.Line > 0 {
		fmt.Fprintf(&b, ":%d", f.Line)
	}
	if f.Field != "" {
		b.WriteString(": " + f.Field)
	}
	return b.String() + ": " + f.Text
}

// Faults is the error of LoadData: all faults, ordered by file and line.
type Faults []Fault

func (f Faults) Error() string {
	lines := make([]string, len(f))
	for i := range f {
		lines[i] = f[i].Error()
	}
	return strings.Join(lines, "\n")
}

// LoadData reads the official files from a folder: BFCL_v4_multi_turn_<category>.json, the answers
// of the same names in possible_answer, multi_turn_func_doc and long_context.json. It skips
// damaged lines and reports them in an error of type Faults; the data returned with it contains all
// other tasks.
func LoadData(dir string) (*Data, error) {
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("load the benchmark data: %w; `make build` unpacks it into .deps/bfcl", err)
	}
	l := &loader{dir: dir, data: &Data{byID: map[string]*Task{}, docs: map[string][]ToolDoc{}}}
	l.readLong()
	l.readDocs()
	for _, category := range Categories {
		l.readCategory(category)
	}
	l.checkDocumented()
	digest := sha256.Sum256(l.sums)
	l.data.digest = hex.EncodeToString(digest[:])
	assignFamilies(l.data.tasks)
	if len(l.faults) > 0 {
		return l.data, l.faults
	}
	return l.data, nil
}

// loader reads the files and collects their faults.
type loader struct {
	dir    string
	data   *Data
	faults Faults
	sums   []byte // SHA-256 digests of the files read so far

	undocumented []*api.Class // classes without a document file
}

// fault records a fault. The arguments are the fields of Fault, except that file is relative to dir.
func (l *loader) fault(file string, line int, field, format string, args ...any) {
	l.faults = append(l.faults, Fault{filepath.Join(l.dir, file), line, field, fmt.Sprintf(format, args...)})
}

// maxFile limits a file in bytes; the largest official one has 0.4 MB.
const maxFile = 16 << 20

// read returns the content of a file. It records a fault and returns false if it cannot. A pipe, a device or a sparse
// file in a folder of a stranger would end only with the memory, or never.
func (l *loader) read(file string) (raw []byte, ok bool) {
	path := filepath.Join(l.dir, file)
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxFile) {
		l.fault(file, 0, "", "it is no plain file of at most %d bytes", maxFile)
		return nil, false
	}
	if err == nil {
		raw, err = os.ReadFile(path)
	}
	if err != nil {
		l.fault(file, 0, "", "%v", errors.Unwrap(err))
		return nil, false
	}
	digest := sha256.Sum256(raw)
	l.sums = append(l.sums, digest[:]...)
	return raw, true
}

// longConstants are the constants of long_context.json that the classes read.
var longConstants = []string{
	"WATCH_LIST_EXTENSION", "TRANSACTION_HISTORY_EXTENSION", "MA_5_EXTENSION", "MA_20_EXTENSION", "TECHNOLOGY_EXTENSION",
	"AUTOMOBILE_EXTENSION", "ORDER_DETAIL_EXTENSION", "FILE_CONTENT_EXTENSION", "POPULATE_FILE_EXTENSION",
	"CAR_STATUS_METADATA_EXTENSION", "LONG_WEATHER_EXTENSION", "PARKING_BRAKE_INSTRUCTION", "INTERMEDIARY_CITIES",
	"CREDIT_CARD_EXTENSION", "BOOKING_RECORD_EXTENSION", "FILES_TAIL_USED",
}

func (l *loader) readLong() {
	const file = "long_context.json"
	raw, ok := l.read(file)
	if !ok {
		return
	}
	v, err := py.FromJSON(raw)
	if err != nil {
		l.fault(file, 0, "", "%v", err)
		return
	}
	d, ok := v.(*py.Dict)
	if !ok {
		l.fault(file, 0, "", "got %s, want an object of constants", py.TypeName(v))
		return
	}
	l.data.long = make(map[string]py.Value, d.Len())
	for k, v := range d.All() {
		constant := decodeValue(v)
		py.Freeze(constant)
		l.data.long[py.Str(k)] = constant
	}
	for _, name := range longConstants {
		if _, ok := l.data.long[name]; !ok {
			l.fault(file, 0, name, "the constant is missing")
		}
	}
}

// lines calls f with every non-blank line of a JSON Lines file.
func lines(raw []byte, f func(line int, text []byte)) {
	for n := 1; len(raw) > 0; n++ {
		text, rest, _ := bytes.Cut(raw, []byte("\n"))
		if len(bytes.TrimSpace(text)) > 0 {
			f(n, text)
		}
		raw = rest
	}
}

func docFile(c *api.Class) string { return "multi_turn_func_doc/" + c.DocFile + ".json" }

// checkDocumented reports classes that the tasks use and no file documents.
func (l *loader) checkDocumented() {
	for _, class := range l.undocumented {
		uses := func(t *Task) bool { return slices.Contains(t.Classes, class.Name) }
		if slices.ContainsFunc(l.data.tasks, uses) {
			l.fault(docFile(class), 0, "", "file not found; it documents the tools of class %s", class.Name)
		}
	}
}

func (l *loader) readDocs() {
	classes := api.Classes()
	for i := range classes {
		class := &classes[i]
		file := docFile(class)
		if _, err := os.Stat(filepath.Join(l.dir, file)); errors.Is(err, fs.ErrNotExist) {
			l.undocumented = append(l.undocumented, class)
			continue
		}
		raw, ok := l.read(file)
		if !ok {
			continue
		}
		known := map[string]bool{}
		lines(raw, func(line int, text []byte) {
			var doc struct{ Name *string }
			if err := json.Unmarshal(text, &doc); err != nil {
				l.fault(file, line, "", "%v", err)
				return
			}
			switch {
			case doc.Name == nil:
				l.fault(file, line, "name", "missing")
			case tools()[*doc.Name].class != class:
				l.fault(file, line, "name", "class %s has no tool %q", class.Name, *doc.Name)
			case known[*doc.Name]:
				l.fault(file, line, "name", "tool %q is documented twice", *doc.Name)
			default:
				known[*doc.Name] = true
				l.data.docs[class.Name] = append(l.data.docs[class.Name], ToolDoc{*doc.Name, slices.Clone(text)})
			}
		})
		for _, m := range class.Methods {
			if !known[m.Name] {
				l.fault(file, 0, "", "tool %q of class %s has no document", m.Name, class.Name)
			}
		}
	}
}

// Limits of the cached initial states. Those of the official tasks count for 7.1 MiB.
const (
	maxWorlds  = 32 << 20 // bytes of their states
	smallWorld = 2 << 10  // bytes that each counts for besides
)

// world returns the loaded initial state of a task, and caches it for later episodes until today changes. A nil d has
// no long-context constants and no cache.
func (d *Data) world(t *Task, today time.Time) (*world, error) {
	if d == nil {
		return newWorld(t, nil, today)
	}
	if w, ok := d.worlds.Load(t); ok && w.(*world).today.Equal(today) {
		return w.(*world), nil
	}
	w, err := newWorld(t, d.long, today)
	if err == nil && d.worldBytes.Load() < maxWorlds {
		if _, known := d.worlds.Swap(t, w); !known {
			d.worldBytes.Add(int64(w.bytes))
		}
	}
	return w, err
}

// toolOrder returns all tools of a task's classes in official order. Without data it uses the class
// table, which has the same order.
func (d *Data) toolOrder(t *Task) []string {
	var names []string
	for _, name := range t.Classes {
		class, ok := api.Lookup(name)
		if !ok {
			continue
		}
		if d != nil && len(d.docs[name]) > 0 {
			for _, doc := range d.docs[name] {
				names = append(names, doc.Name)
			}
		} else {
			for _, m := range class.Methods {
				names = append(names, m.Name)
			}
		}
	}
	return names
}

// printedDocs returns the documents of a task's tools as Python prints a list of them, or "" if they are unknown.
func (d *Data) printedDocs(t *Task, tools []string) string {
	if d == nil {
		return ""
	}
	var texts []string
	for _, name := range tools {
		for _, class := range t.Classes {
			for _, doc := range d.docs[class] {
				if doc.Name != name {
					continue
				}
				v, err := py.FromJSON(doc.JSON)
				if err != nil {
					return ""
				}
				texts = append(texts, py.Repr(v))
			}
		}
	}
	if len(texts) == 0 {
		return ""
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// readCategory reads the questions and answers of a category and joins them to tasks.
func (l *loader) readCategory(category string) {
	name := "BFCL_v4_multi_turn_" + category + ".json"
	questions, ok := l.read(name)
	if !ok {
		return
	}
	answerFile := "possible_answer/" + name
	answers := l.readAnswers(answerFile)
	if answers == nil {
		return
	}
	seen := map[string]int{} // id of a question -> its line
	lines(questions, func(line int, text []byte) {
		q, ok := place{l, name, line}.readQuestion(text, category)
		if q.id == "" {
			return
		}
		if first, twice := seen[q.id]; twice {
			q.fault("id", "%s is already in line %d", q.id, first)
			return
		}
		seen[q.id] = line
		a, found := answers[q.id]
		if !found {
			q.fault("id", "%s has no usable answer in %s", q.id, answerFile)
			return
		}
		if ok {
			l.join(q, a)
		}
	})
	for id, a := range answers {
		if _, asked := seen[id]; !asked {
			a.fault("id", "%s is not the id of a readable question", id)
		}
	}
	slices.SortStableFunc(l.faults, func(a, b Fault) int {
		if a.File != b.File {
			return 0
		}
		return a.Line - b.Line
	})
}

// question is one line of a file of questions.
type question struct {
	place
	id       string
	turns    []string // user messages; "" for a turn without one
	config   json.RawMessage
	classes  []string
	revealed map[int][]string // index of a turn -> tools that it reveals
}

// answer is one line of a file of answers.
type answer struct {
	place
	turns [][]string // ground-truth calls of each turn
}

// place is one line of a file. The functions below read the line, and report its faults there.
type place struct {
	loader *loader
	file   string
	line   int
}

func (p place) fault(field, format string, args ...any) {
	p.loader.fault(p.file, p.line, field, format, args...)
}

// fields reads one line as a JSON object and reports errors.
func (p place) fields(text []byte) (*py.Dict, map[string]json.RawMessage, bool) {
	v, err := py.FromJSON(text)
	if err != nil {
		p.fault("", "the line is not JSON: %v", err)
		return nil, nil, false
	}
	d, ok := v.(*py.Dict)
	if !ok {
		p.fault("", "got %s, want an object", py.TypeName(v))
		return nil, nil, false
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(text, &raw); err != nil {
		p.fault("", "the line is not JSON: %v", err)
		return nil, nil, false
	}
	return d, raw, true
}

// field returns a field of type T; it reports a missing field or another type.
func field[T any](p place, d *py.Dict, name, want string) (T, bool) {
	v, ok := d.Get(name)
	if !ok {
		p.fault(name, "missing, want %s", want)
		var none T
		return none, false
	}
	return typed[T](p, v, name, want)
}

// typed returns v as type T; it reports another type.
func typed[T any](p place, v py.Value, name, want string) (T, bool) {
	t, ok := v.(T)
	if !ok {
		p.fault(name, "got %s, want %s", py.TypeName(v), want)
	}
	return t, ok
}

// texts reads a list of strings.
func texts(p place, v py.Value, name string) ([]string, bool) {
	list, ok := typed[*py.List](p, v, name, "a list of strings")
	if !ok {
		return nil, false
	}
	out := make([]string, 0, len(list.Items))
	for i, item := range list.Items {
		s, isText := typed[string](p, item, fmt.Sprintf("%s[%d]", name, i), "a string")
		ok = ok && isText
		out = append(out, s)
	}
	return out, ok
}

// readQuestion reads and checks one question. It sets the id even if it returns false.
func (p place) readQuestion(text []byte, category string) (q question, ok bool) {
	q.place = p
	before := len(p.loader.faults)
	d, raw, ok := p.fields(text)
	if !ok {
		return q, false
	}
	id, ok := field[string](p, d, "id", "a string")
	if !ok {
		return q, false
	}
	prefix := officialPrefix + category + "_"
	if number, ok := strings.CutPrefix(id, prefix); !ok || !isTaskNumber(number) {
		p.fault("id", "%q is not an id of this file, want %s and a number", id, prefix)
		return q, false
	}
	q.id = id
	p.readTurns(d, &q)
	if list, ok := d.Get("involved_classes"); !ok {
		p.fault("involved_classes", "missing, want a list of class names")
	} else if q.classes, ok = texts(p, list, "involved_classes"); ok {
		p.checkClasses(q.classes)
	}
	if config, ok := field[*py.Dict](p, d, "initial_config", "an object of class names"); ok {
		q.config = raw["initial_config"]
		for k, v := range config.All() {
			typed[*py.Dict](p, v, "initial_config."+py.Str(k), "an object")
			if _, known := api.Lookup(py.Str(k)); !known {
				p.fault("initial_config."+py.Str(k), "unknown class")
			}
		}
	}
	p.readMissed(d, &q)
	return q, len(p.loader.faults) == before
}

// isTaskNumber reports whether s is a decimal number without sign and leading zeros.
func isTaskNumber(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= 0 && strconv.Itoa(n) == s
}

// checkClasses reports unknown and repeated classes.
func (p place) checkClasses(classes []string) {
	if len(classes) == 0 {
		p.fault("involved_classes", "empty, want at least one class name")
	}
	for i, name := range classes {
		at := fmt.Sprintf("involved_classes[%d]", i)
		if _, known := api.Lookup(name); !known {
			p.fault(at, "unknown class %q", name)
		} else if slices.Contains(classes[:i], name) {
			p.fault(at, "duplicate class %q", name)
		}
	}
}

// readTurns sets the user messages of a question.
func (p place) readTurns(d *py.Dict, q *question) {
	turns, ok := field[*py.List](p, d, "question", "a list of turns")
	if !ok {
		return
	}
	if len(turns.Items) == 0 {
		p.fault("question", "empty, want at least one turn")
	}
	for i, v := range turns.Items {
		at := fmt.Sprintf("question[%d]", i)
		user := ""
		turn, ok := typed[*py.List](p, v, at, "a list of messages")
		if ok && len(turn.Items) > 1 {
			p.fault(at, "the turn has %d messages, want one or none", len(turn.Items))
		} else if ok && len(turn.Items) == 1 {
			user = p.readMessage(turn.Items[0], at+"[0]")
		}
		q.turns = append(q.turns, user)
	}
}

// readMessage returns the content of a user message, and "" after a fault.
func (p place) readMessage(v py.Value, at string) string {
	message, ok := typed[*py.Dict](p, v, at, "a message with role and content")
	if !ok {
		return ""
	}
	role, ok := field[string](p, message, "role", "a string")
	if ok && role != "user" {
		p.fault(at+".role", "got %q, want \"user\"", role)
	}
	content, found := message.Get("content")
	if !found {
		p.fault(at+".content", "missing, want a string")
		return ""
	}
	user, _ := typed[string](p, content, at+".content", "a string")
	return user
}

// readMissed sets the tools that each turn of a question reveals.
func (p place) readMissed(d *py.Dict, q *question) {
	v, ok := d.Get("missed_function")
	if !ok {
		return
	}
	missed, ok := typed[*py.Dict](p, v, "missed_function", "an object of turn numbers")
	if !ok {
		return
	}
	q.revealed = map[int][]string{}
	for k, v := range missed.All() {
		at := "missed_function." + py.Str(k)
		turn, err := strconv.Atoi(py.Str(k))
		if err != nil || turn < 0 || turn >= len(q.turns) {
			p.fault(at, "the key is not a turn index, want 0 to %d", len(q.turns)-1)
			continue
		}
		names, _ := texts(p, v, at)
		for i, name := range names {
			if t, known := tools()[name]; !known || !slices.Contains(q.classes, t.class.Name) {
				p.fault(fmt.Sprintf("%s[%d]", at, i), "tool %q does not belong to the involved classes", name)
			}
		}
		q.revealed[turn] = names
	}
}

// readAnswers returns the answers of a file by id, without damaged ones. It returns nil if it cannot read the file.
func (l *loader) readAnswers(file string) map[string]answer {
	raw, ok := l.read(file)
	if !ok {
		return nil
	}
	answers := map[string]answer{}
	lines(raw, func(line int, text []byte) {
		p := place{l, file, line}
		d, _, ok := p.fields(text)
		if !ok {
			return
		}
		id, ok := field[string](p, d, "id", "a string")
		if !ok {
			return
		}
		if first, twice := answers[id]; twice {
			p.fault("id", "%s is already in line %d", id, first.line)
			return
		}
		list, ok := field[*py.List](p, d, "ground_truth", "a list of turns")
		if !ok {
			return
		}
		a := answer{place: p}
		for i, v := range list.Items {
			calls, fine := texts(p, v, fmt.Sprintf("ground_truth[%d]", i))
			ok = ok && fine
			a.turns = append(a.turns, calls)
		}
		if ok {
			answers[id] = a
		}
	})
	return answers
}

// join builds the task of a question and its answer, and checks them against each other.
func (l *loader) join(q question, a answer) {
	before := len(l.faults)
	if len(a.turns) != len(q.turns) {
		a.fault("ground_truth", "got %d turns, want %d as in the question", len(a.turns), len(q.turns))
		return
	}
	cut := strings.LastIndexByte(q.id, '_') // the id is multi_turn_CATEGORY_NUMBER
	number, _ := strconv.Atoi(q.id[cut+1:])
	t := &Task{ID: q.id, Category: strings.TrimPrefix(q.id[:cut], officialPrefix), Number: number,
		Classes: q.classes, InitialConfig: q.config}
	for i := range q.turns {
		truth := a.turns[i]
		if truth == nil {
			truth = []string{}
		}
		t.Turns = append(t.Turns, Turn{User: q.turns[i], GroundTruth: truth, Revealed: q.revealed[i]})
		for j, call := range a.turns[i] {
			if text := callFault(t, call); text != "" {
				a.fault(fmt.Sprintf("ground_truth[%d][%d]", i, j), "%s", text)
			}
		}
	}
	if _, err := newWorld(t, l.data.long, time.Time{}); err != nil {
		q.fault("initial_config", "%v", err)
	}
	if len(l.faults) == before {
		l.data.tasks = append(l.data.tasks, t)
		l.data.byID[t.ID] = t
	}
}

// callFault describes the error in a ground-truth call; "" if it is valid.
func callFault(t *Task, call string) string {
	a, ok := readAction(call)
	if !ok {
		return fmt.Sprintf("%q is not a call of a tool by name", call)
	}
	known, ok := tools()[a.name]
	if !ok {
		return fmt.Sprintf("unknown tool %q", a.name)
	}
	if !slices.Contains(t.Classes, known.class.Name) {
		return fmt.Sprintf("tool %q belongs to %s, which is not an involved class", a.name, known.class.Name)
	}
	args := map[string]bool{}
	for _, arg := range a.args {
		if arg.name == "" {
			return fmt.Sprintf("%q has more arguments than tool %s takes", call, a.name)
		}
		if !slices.ContainsFunc(known.method.Params, func(p api.Param) bool { return p.Name == arg.name }) {
			return fmt.Sprintf("tool %s has no parameter %q", a.name, arg.name)
		}
		args[arg.name] = true
	}
	for _, p := range known.method.Params {
		if p.Required && !args[p.Name] {
			return fmt.Sprintf("%q lacks the argument %q", call, p.Name)
		}
	}
	return ""
}

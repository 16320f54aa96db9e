package docs_test

import (
	"regexp"
	"strings"
	"testing"

	"rcgrpo/internal/must"
)

// retired is a word that the project no longer uses in these places, and the word in its place.
type retired struct {
	word   string // a regular expression
	places string // beginnings of paths, separated by blanks
	use    string
}

const (
	code  = "bfcl/ cmd/ stages/ "
	prose = "docs/ README.md CONTRIBUTING.md reports/ engine/lang/settings.txt "
)

var retiredWords = []retired{
	{`(?i)action tokens?\b`, code + prose, "tokens of the mask"},
	{`(?i)\blearned_tokens\b`, code + prose + "experiments/", "mask_tokens"},
	{`\bLearned\b|\.Learn\b|\bLearn:? +\[\]bool`,
		"stages/internal/lm/ stages/internal/train/ stages/sft/ stages/pieces.go cmd/rcgrpo/internal/views/", "Mask"},
	{`\bFamily\b`, "stages/internal/checkpoint/", "Layout, or lm.Config.Decoder"},
	{`\bFamily\b|\bfamilies\[`, "stages/internal/lm/ stages/internal/gguf/", "Decoder"},
	{`\bProgram\b|\bprogram \*jinja\b`, "stages/internal/jinja/ stages/internal/chat/", "jinja.Template"},
	{`\bpool\b`, "stages/internal/lm/", "sharedCache"},
	{`\bExecute\(`, "bfcl/", "StepOutcomes"},
	{`(Job|Work)\) Execute\(`, "engine/", "RunProgram, ExecuteHere"},
	{`(if|case|;|&&|\|\|) [tmw]\.Key [!=]= ""`, "engine/", "shownOnly, ShownOnly"},
	{`\brecords?\b`, "engine/slurm/ docs/cluster.md", "spec, exit file"},
	{`\brecord(Name|File)\b`, "engine/artifact/", "stagedManifest, stateList"},
	{`enginetest\.Record\b`, "engine/", "enginetest.Outcome"},
	{`l\.named\b|\bsetOnce\b`, "engine/lang/", "stageNamed, setValueOrigin"},
	{`\bc\.runs\(|\bc\.plan\(`, "cmd/rcgrpo/", "does, newPlan"},
	{`\.\(interface ?\{|\bvar \w+ interface ?\{`, code + "engine/ reports/",
		"an interface with a name, beside lang.Kind if the engine's readers use it"},
	{`\bPenalty\(|\.penalty\b`, "stages/grpo/ stages/rl/", "KLPenalty, or a RewardTerm"},
	{`(?i)\balarms?\b`, "stages/ bfcl/ cmd/ reports/", "none: there are none"},
	{`groupSource\) sample\(|settings\) prepare\(`, "stages/grpo/", "rollout, completeBatch"},
	{`(?i)\bgangs?\b`, "engine/ stages/ docs/ README.md", "ranks"},
	{`\bTalk\b|\btalkOf\b`, "stages/", "Codec"},
	{`(type |\*)record\b|\.record\.`, "stages/internal/provider/", "callRecord"},
	{`\bRecord\b|\bs\.Records\b`, "reports/", "Stage, Study.Stages"},
	{`\b(new)?Pool\b`, "stages/internal/environment/", "Processes"},
	{`type batch\b|\*batch\b`, "stages/internal/lm/", "microBatch"},
	{`\bbfcl\.Program\b|\benvironment\.(Read)?Program\b`, "stages/", "bfcl.ProgramRef, environment.Description"},
	{`(?m)\bc\.run\(|^func run\(`, "cmd/rcgrpo/", "execute, runExperiment"},
	{`\bhow\.claims\(|Comparison\) claims\(`, "reports/", "Study.claims, Comparison.contrastsIn"},
	{`doc:"`, "stages/ engine/ reports/", "the comment of the field"},
}

// A retired word returns in one of three ways: a merge of old code, a habit, or a second meaning.
func TestNoRetiredWordReturns(t *testing.T) {
	for path, text := range tracked(t, "*.go", "*.md", "*.txt", "*.hcl") {
		if path == "docs/words_test.go" {
			continue
		}
		for _, r := range retiredWords {
			for place := range strings.FieldsSeq(r.places) {
				if !strings.HasPrefix(path, place) {
					continue
				}
				if at := regexp.MustCompile(r.word).FindStringIndex(text); at != nil {
					line := 1 + strings.Count(text[:at[0]], "\n")
					t.Errorf("%s:%d: %q is retired; use %s", path, line, text[at[0]:at[1]], r.use)
				}
				break
			}
		}
	}
}

// Each place of the list has files, so a renamed folder does not silence it.
func TestRetiredWordsHavePlaces(t *testing.T) {
	files := tracked(t, "*.go", "*.md", "*.txt", "*.hcl")
	for _, r := range retiredWords {
		for place := range strings.FieldsSeq(r.places) {
			found := false
			for path := range files {
				found = found || strings.HasPrefix(path, place)
			}
			if !found {
				t.Errorf("%s: no file begins with %s", r.word, place)
			}
		}
	}
}

// The glossary stays short, has no word twice, and explains in its words.
func TestGlossaryHasAtMost45Nouns(t *testing.T) {
	page := read(t, "docs/architecture.md")
	_, section, found := strings.Cut(page, "\n## Words\n")
	section, _, _ = strings.Cut(section, "\n## ")
	rows := regexp.MustCompile(`(?m)^\| ([a-z ]+) \| (.+) \|$`).FindAllStringSubmatch(section, -1)
	rows = rows[min(1, len(rows)):] // without the header
	if !found || len(rows) < 30 || len(rows) > 45 {
		t.Fatalf("the glossary has %d nouns, want 30 to 45", len(rows))
	}
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r[1]] {
			t.Errorf("%q is explained twice", r[1])
		}
		seen[r[1]] = true
	}
	must.Contain(t, section, "| mask |", "| reward term |", "| row |", "| attempt |", "| source |")
}

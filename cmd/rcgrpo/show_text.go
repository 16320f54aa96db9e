package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mitchellh/go-wordwrap"

	"rcgrpo/engine/lang"
	"rcgrpo/reports"
	"rcgrpo/stages/rl"
)

// paragraphIndent is the column of texts; names are printed to the left of it.
const paragraphIndent = 11

// conversation prints the messages of a trajectory. If the tokens are recorded, each message has the number of sampled
// tokens and their mean logprob.
func (v *view) conversation(t *rl.Trajectory) {
	fmt.Fprintf(v.out, "\n%s  %s, member %d, origin %s", t.Task, t.Category, t.Member, t.Origin)
	if t.Token != "" {
		fmt.Fprintf(v.out, ", token %s", t.Token)
	}
	fmt.Fprintf(v.out, "\nreward %g (state %g, action %g), official %v, stop %s, %d calls, %d errors\n",
		t.Reward, t.RState, t.RAction, t.Official, t.Stop, t.Calls, t.Errors)
	for _, text := range []string{t.Failure, t.Spoilt} {
		if text != "" {
			fmt.Fprintln(v.out, text)
		}
	}
	turn := -1
	for _, m := range t.Messages {
		if m.Turn != turn {
			turn = m.Turn
			fmt.Fprintf(v.out, "\nturn %d\n", turn+1)
		}
		text := m.Text
		if text == "" {
			text = strings.Join(m.Calls, "\n")
		}
		if m.Role == rl.RoleAssistant { // the policy learns its own replies
			text = "[[" + text + "]]"
		}
		v.paragraph(m.Role, text)
		if note := sampledText(t, m); note != "" {
			v.paragraph("", note)
			v.strip(reports.TokenStrip(t, m))
		}
	}
	if v.layout != nil {
		v.tokens(t)
	}
}

// tokens prints the text that the policy reads. Learned tokens are in double brackets.
func (v *view) tokens(t *rl.Trajectory) {
	learned, all := 0, 0
	var text strings.Builder
	for _, p := range v.layout(t) {
		all += p.Tokens
		if p.Learned {
			learned += p.Tokens
			p.Text = "[[" + p.Text + "]]"
		}
		text.WriteString(p.Text)
	}
	fmt.Fprintf(v.out, "\n%d tokens, %d of them learned, in [[ ]]\n", all, learned)
	v.paragraph("", text.String())
}

// strip prints a character for each token: a dot for a given token, a block for a sampled one. The block is higher, and
// redder, the less likely the token was.
func (v *view) strip(strip string) {
	for line := range slices.Chunk([]rune(strip), max(20, v.width-paragraphIndent)) {
		text := string(line)
		if v.colour {
			var b strings.Builder
			for _, r := range line {
				colour := "2" // given: faint
				if r != reports.StripGiven {
					colour = "38;5;" + []string{"250", "229", "222", "215", "208", "202", "196", "160"}[min(7, max(0, r-'▁'))]
				}
				fmt.Fprintf(&b, "\x1b[%sm%c\x1b[0m", colour, r)
			}
			text = b.String()
		}
		fmt.Fprintf(v.out, "%*s%s\n", paragraphIndent, "", text)
	}
}

// sampledText returns the number of sampled tokens of a message and their mean logprob; "" if there are none.
func sampledText(t *rl.Trajectory, m rl.Message) string {
	if m.To <= m.From || m.To > len(t.Mask) || m.To > len(t.Logp) {
		return ""
	}
	n, sum := 0, 0.0
	for i := m.From; i < m.To; i++ {
		if t.Mask[i] {
			n++
			sum += float64(t.Logp[i])
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("(%d of %d tokens sampled, mean logprob %.3f)", n, m.To-m.From, sum/float64(n))
}

// paragraph prints a wrapped text to the right of a name.
func (v *view) paragraph(name, text string) {
	room := max(20, v.width-paragraphIndent)
	for _, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		for _, line := range strings.Split(wordwrap.WrapString(line, uint(room)), "\n") {
			runes := []rune(line)
			for ok := true; ok; ok = len(runes) > 0 { // a word may be longer than a line
				n := min(room, len(runes))
				fmt.Fprintf(v.out, "%-*s%s\n", paragraphIndent, name, printable(string(runes[:n])))
				name, runes = "", runes[n:]
			}
		}
	}
}

// printable replaces control characters: the text of a policy must not control the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\t' && (r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0) {
			return '�'
		}
		return r
	}, text)
}

// checkpoint prints the settings of a model, of its use as a policy and of its adapter, if it has one.
func (v *view) checkpoint() error {
	for _, file := range []string{"config.json", "rcgrpo.json", "adapter/adapter_config.json"} {
		b, err := os.ReadFile(v.Path(file))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		values := map[string]any{}
		if err := json.Unmarshal(b, &values); err != nil {
			return fmt.Errorf("%s: %w", v.Path(file), err)
		}
		fmt.Fprintf(v.out, "\n%s\n", file)
		for _, name := range slices.Sorted(maps.Keys(values)) {
			text, err := json.Marshal(values[name])
			if err != nil {
				return err
			}
			fmt.Fprintf(v.out, "  %-28s %s\n", name, printable(string(text)))
		}
	}
	return v.files()
}

// page prints the page as text if it has that form, otherwise its files.
func (v *view) page() error {
	for _, f := range v.Manifest.Outputs[v.port()].Files {
		if filepath.Ext(f.Name) == ".txt" {
			b, err := os.ReadFile(v.Path(f.Name))
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(v.out, "\n%s", b)
			return err
		}
	}
	return v.files()
}

// port returns the port of the artifact.
func (v *view) port() string {
	for port, o := range v.Manifest.Outputs {
		if o.Digest == v.Digest && o.Type == v.Type {
			return port
		}
	}
	return ""
}

// files lists the files of the artifact.
func (v *view) files() error {
	fmt.Fprintln(v.out, "\nfiles")
	o := v.Manifest.Outputs[v.port()]
	list := slices.Clone(o.Files)
	if o.Times != nil {
		list = append(list, o.Times.Files...)
	}
	for _, f := range list {
		fmt.Fprintf(v.out, "  %10s  %.12s  %s\n", lang.BytesText(f.Bytes), f.SHA256, v.Path(f.Name))
	}
	return nil
}

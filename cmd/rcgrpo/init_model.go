package main

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	gotemplate "text/template"
	"unicode"

	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/mitchellh/go-wordwrap"
	"github.com/zclconf/go-cty/cty"

	"rcgrpo/stages"
)

// modelValues are the values of templates/model.tmpl.
type modelValues struct {
	stages.ModelStart
	Name, Path   string   // quoted file name; expression of the path
	Why          []string // lines of a comment
	Reply, Alpha int
	Context      int // limit of an episode
}

// signatureEpisode is the limit in tokens of an episode whose prompt has the signatures of the tools, up to 230 tokens.
const signatureEpisode = 1024

// initModel writes an experiment for a model of the user into a folder.
func initModel(w io.Writer, model, dir string) error {
	start, err := stages.StartModel(model)
	if err != nil {
		return fmt.Errorf("%w (`rcgrpo check %s` lists everything that is not supported)", err, model)
	}
	path := filepath.Join(dir, "model.hcl")
	if err := refuseExisting(path, "--model PATH"); err != nil {
		return err
	}
	text, err := modelExperiment(start, model, dir)
	if err == nil {
		err = writeNew(path, text)
	}
	if err != nil {
		return err
	}
	template{page: true, needs: "name the benchmark's data in site.hcl: data { bfcl = \"FOLDER\" }"}.printNext(w, path)
	return nil
}

// modelExperiment returns the text of an experiment in dir. It names the model relative to dir if its path is relative.
func modelExperiment(start stages.ModelStart, model, dir string) ([]byte, error) {
	from := model
	if !filepath.IsAbs(model) {
		to, err := filepath.Abs(dir)
		if err == nil {
			from, err = filepath.Abs(model)
		}
		if err == nil {
			from, err = filepath.Rel(to, from)
		}
		if err != nil {
			return nil, err
		}
	}
	function := "dir"
	if stages.IsModelFile(model) {
		function = "file"
	}
	v := modelValues{ModelStart: start, Name: fmt.Sprintf("%q", filepath.Base(from)), Alpha: 2 * start.Rank,
		Path:  function + "(" + string(hclwrite.TokensForValue(cty.StringVal(from)).Bytes()) + ")",
		Reply: 120, Context: min(stages.DocumentsEpisode, start.Context)}
	if start.Layout == stages.SignaturesLayout {
		v.Reply, v.Context = 60, min(signatureEpisode, start.Context)
	}
	why := fmt.Sprintf("The model reads %d tokens, and JSON documents of tools are long.", start.Context)
	if start.Why != nil {
		why = fmt.Sprintf("The model's own chat template is not used. %v", start.Why)
	}
	v.Why = commentLines(why)
	t, err := gotemplate.ParseFS(templateFiles, "templates/model.tmpl")
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	if err := t.Execute(&text, v); err != nil {
		return nil, err
	}
	return hclwrite.Format(text.Bytes()), nil
}

// commentLines breaks a text of strangers into lines of a comment inside a block.
func commentLines(text string) []string {
	printed := strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	return strings.Split(wordwrap.WrapString(printed, 110), "\n")
}

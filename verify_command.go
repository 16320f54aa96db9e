package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"rcgrpo/engine"
	"rcgrpo/engine/artifact"
	"rcgrpo/reports"
)

// verifyCommand runs `rcgrpo verify PAGE`: it computes every number of a page again from the artifacts and exits with 1
// when anything differs.
func verifyCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("verify", "PAGE", stdout, stderr)
	bundle := c.String("bundle", "", "read the artifacts from this `FILE` instead of the store")
	asJSON := c.Bool("json", false, "print the result for programs")
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) != 1 {
		return c.misuse("want one page, or a bundle, which has its page inside; got %d", len(c.args))
	}
	page, store, done, err := c.openPage(c.args[0], *bundle)
	if err != nil {
		return c.fail(err)
	}
	defer done()
	v, err := reports.Verify(page, store)
	if err != nil {
		return c.fail(fmt.Errorf("%s: %w", c.args[0], err))
	}
	if *asJSON {
		err = printJSON(stdout, v)
	} else {
		err = printVerification(stdout, v, c.args[0])
	}
	if err != nil {
		return c.fail(err)
	}
	if !v.OK() {
		return exitFailed
	}
	return exitDone
}

// openPage reads a page and opens the store that its artifacts are in: that of a bundle, unpacked until done is called,
// or the site's. A bundle may stand in the page's place.
func (c *call) openPage(path, bundle string) (page []byte, store *artifact.Store, done func(), err error) {
	if strings.HasSuffix(path, reports.BundleSuffix) {
		path, bundle = "", path
	}
	done = func() {}
	if path != "" {
		if page, err = os.ReadFile(path); err != nil {
			return nil, nil, done, err
		}
	}
	if bundle == "" {
		site, _, diags := engine.LoadSite(c.source)
		c.tell(diags, nil)
		if diags.HasErrors() || site.StorePath == "" {
			return nil, nil, done, fmt.Errorf("no store: name a site file with -site, or a bundle with -bundle")
		}
		store, err = artifact.Open(site.StorePath)
		return page, store, done, err
	}
	dir, done, err := temporaryFolder("rcgrpo-bundle-")
	if err != nil {
		return nil, nil, func() {}, err
	}
	inside, store, err := reports.OpenBundle(bundle, dir)
	if err != nil {
		done()
		return nil, nil, func() {}, err
	}
	if path == "" {
		page = inside
	}
	return page, store, done, nil
}

func printVerification(w io.Writer, v *reports.Verification, page string) error {
	var b strings.Builder
	for _, fault := range v.Faults {
		fmt.Fprintf(&b, "%s\n", fault)
	}
	for _, d := range v.Differences {
		recomputed := fmt.Sprintf("recomputed %q", d.Recomputed)
		if d.Recomputed == "" {
			recomputed = "cannot be computed again"
		}
		fmt.Fprintf(&b, "%s: shows %q, %s\n", d.Where, d.Shown, recomputed)
		if d.Source != "" {
			fmt.Fprintf(&b, "    %s\n", d.Source)
		}
	}
	verdict := "all of it follows from the artifacts"
	if !v.OK() {
		if v.NumbersHold() {
			fmt.Fprintln(&b, "Every number is as recomputed. The rest differs as it does between versions of rcgrpo; if this one made the page, it was edited.")
		}
		verdict = fmt.Sprintf("%d damaged or other artifacts, %d differences", len(v.Faults), len(v.Differences))
	}
	fmt.Fprintf(&b, "%s: %d cells, %d values of figures, transcripts of %d arms, %d artifacts read to the last byte: %s\n", page, v.Cells, v.Values, v.Transcripts, v.Artifacts, verdict)
	_, err := io.WriteString(w, b.String())
	return err
}

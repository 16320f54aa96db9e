package main

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"rcgrpo/engine/artifact"
	"rcgrpo/reports"
)

// verifyCommand runs `rcgrpo verify PAGE`: it computes every number of a page again from the artifacts and exits with 1
// when anything differs.
func verifyCommand(args []string, _ io.Reader, stdout, stderr io.Writer) int {
	c := newCall("verify", "PAGE", stdout, stderr)
	bundle := c.String("bundle", "", "read the artifacts from this `FILE` instead of the store")
	asJSON := c.Bool("json", false, "print the result for programs")
	limit := c.limitFlag()
	if code, done := c.parse(args); done {
		return code
	}
	if len(c.args) != 1 {
		return c.misuse("want one page, or a bundle, which has its page inside; got %d", len(c.args))
	}
	in, err := c.openPage(c.args[0], *bundle, *limit)
	if err != nil {
		return c.fail(err)
	}
	defer in.close()
	var v *reports.Verification
	if in.bundle != nil {
		v, err = reports.VerifyBundle(in.page, in.bundle)
	} else {
		var store *artifact.Store
		if store, _, err = c.siteStore(); err != nil {
			return c.fail(fmt.Errorf("%w, or name a bundle with -bundle", err))
		}
		v, err = reports.Verify(in.page, store)
	}
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

// openedPage is a page that a command reads, and the bundle that it came with.
type openedPage struct {
	page   []byte
	bundle *reports.Bundle // nil without one
	close  func()          // removes the unpacked bundle
}

// openPage reads a page. Of a bundle, which may stand in the page's place, at most limit bytes are unpacked into a folder
// that close removes, and so does a signal.
func (c *call) openPage(path, bundle string, limit int64) (in openedPage, err error) {
	if strings.HasSuffix(path, reports.BundleSuffix) {
		path, bundle = "", path
	}
	in = openedPage{close: func() {}}
	if path != "" {
		if in.page, err = reports.ReadPage(path); err != nil {
			return in, err
		}
	}
	if bundle == "" {
		return in, nil
	}
	dir, done, err := temporaryFolder("rcgrpo-bundle-")
	if err != nil {
		return in, err
	}
	in.close = done
	if in.bundle, err = reports.OpenBundle(bundle, dir, limit); err != nil {
		done()
		return in, err
	}
	if path == "" {
		in.page = in.bundle.Page
	}
	return in, nil
}

// limitFlag is the flag that says how much a bundle may unpack to.
func (c *call) limitFlag() *int64 {
	limit := int64(reports.BundleBytes)
	c.Func("limit", fmt.Sprintf("most `MEGABYTES` that a bundle may unpack to (default %d)", limit>>20), func(text string) error {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil || n < 1 {
			return errors.New("want a whole number of megabytes")
		}
		limit = n << 20
		return nil
	})
	return &limit
}

func printVerification(w io.Writer, v *reports.Verification, page string) error {
	var b strings.Builder
	for _, text := range v.NotCovered {
		fmt.Fprintln(&b, text)
	}
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
		verdict = fmt.Sprintf("%d damaged or other artifacts and files, %d differences", len(v.Faults), len(v.Differences))
	}
	files := ""
	if v.Files > 0 {
		files = fmt.Sprintf("%d files of the experiment, ", v.Files)
	}
	fmt.Fprintf(&b, "%s: %d cells, %d values of figures, transcripts of %d arms, %s%d artifacts read to the last byte: %s\n", page, v.Cells, v.Values, v.Transcripts, files, v.Artifacts, verdict)
	_, err := io.WriteString(w, visible(b.String()))
	return err
}

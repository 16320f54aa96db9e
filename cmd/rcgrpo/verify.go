package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize/english"
	"github.com/spf13/cobra"

	"rcgrpo/cmd/rcgrpo/internal/interrupt"
	"rcgrpo/cmd/rcgrpo/internal/output"
	"rcgrpo/engine/artifact"
	"rcgrpo/engine/lang"
	"rcgrpo/engine/remote"
	"rcgrpo/reports"
	"rcgrpo/stages"
)

func verifyCommand() *cobra.Command {
	c := newExperimentCommand("verify PAGE", "Recompute every number of a page from the artifacts",
		wantArgs(1, 1, "want one page, or a bundle, which contains its page"))
	bundle := c.Flags().String("bundle", "", "read the artifacts from `FILE` instead of the store")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	limit := c.limitFlag()
	return c.does(func(args []string) error {
		in, err := openPage(args[0], *bundle, *limit)
		if err != nil {
			return err
		}
		defer in.close()
		v, err := c.verify(in)
		if err != nil {
			return fmt.Errorf("%s: %w", args[0], err)
		}
		if *asJSON {
			err = output.JSON(c.stdout(), v)
		} else {
			err = printVerification(c.stdout(), v, args[0])
		}
		if err == nil && !v.OK() {
			err = exitCode(exitFailed)
		}
		return err
	})
}

// verify recomputes a page from the artifacts of its bundle or of the store, and replays its calls of API models.
// Artifacts that the store lacks are fetched from the remote store.
func (c *command) verify(in openedPage) (v *reports.Verification, err error) {
	var site *lang.Site
	if in.bundle != nil {
		v, err = reports.Verify(in.page, in.bundle.Store, in.bundle.Files, nil)
	} else {
		var store *artifact.Store
		if store, site, err = c.siteStore(); err != nil {
			return nil, fmt.Errorf("%w, or name a bundle with --bundle", err)
		}
		r := remote.Open(site, store)
		r.Report(c.reportRemote)
		v, err = reports.Verify(in.page, store, nil, r)
	}
	if err == nil && len(v.Recorded) > 0 && site == nil {
		_, site, err = c.siteStore()
	}
	if err != nil {
		return nil, err
	}
	damaged := len(v.Faults) > 0
	for _, r := range v.Recorded {
		result := stages.CallsResult{Store: r.Store, Manifest: r.Manifest, Endpoint: r.Endpoint, Tasks: r.Tasks,
			Benchmark: site.BFCL}
		calls, faults, err := result.Replay(context.Background())
		if err != nil && !damaged { // of damaged artifacts the cause is already a fault
			faults = []string{"its calls cannot be replayed: " + err.Error()}
		}
		v.Calls += calls
		for _, fault := range faults {
			v.Faults = append(v.Faults, r.Address+": "+fault)
		}
	}
	return v, nil
}

type openedPage struct {
	page   []byte
	bundle *reports.Bundle // nil without a bundle
	close  func()          // removes the unpacked bundle
}

// openPage reads a page, or a bundle with its page. It unpacks at most limit megabytes of a bundle into a temporary
// folder; close and signals remove it.
func openPage(path, bundle string, limit uint32) (in openedPage, err error) {
	in.close = func() {}
	if strings.HasSuffix(path, reports.BundleSuffix) {
		bundle = path
	} else if in.page, err = reports.ReadPage(path); err != nil || bundle == "" {
		return in, err
	}
	dir, remove, err := interrupt.TemporaryFolder("rcgrpo-bundle-")
	if err != nil {
		return in, err
	}
	if in.bundle, err = reports.OpenBundle(bundle, dir, int64(limit)<<20); err != nil {
		remove()
		return in, err
	}
	in.close = remove
	if bundle == path {
		in.page = in.bundle.Page
	}
	return in, nil
}

func (c *command) limitFlag() (megabytes *uint32) {
	return c.Flags().Uint32("limit", reports.BundleBytes>>20, "unpack at most `MEGABYTES` of a bundle")
}

func printVerification(w io.Writer, v *reports.Verification, page string) error {
	var b strings.Builder
	for _, fault := range v.Faults {
		fmt.Fprintf(&b, "%s\n", fault)
	}
	for _, d := range v.Differences {
		recomputed := fmt.Sprintf("recomputed %q", d.Recomputed)
		if d.Recomputed == "" {
			recomputed = "cannot be recomputed"
		}
		fmt.Fprintf(&b, "%s: shows %q, %s\n", d.Where, d.Shown, recomputed)
		if d.Source != "" {
			fmt.Fprintf(&b, "    %s\n", d.Source)
		}
	}
	verdict := "everything follows from the artifacts"
	if !v.OK() {
		if v.ValuesHold() {
			fmt.Fprintln(&b, "The values in the data of the page are correct. Its text differs: another version of rcgrpo "+
				"made it, or somebody edited it, and then it may show other numbers. rcgrpo report writes a page again.")
		}
		verdict = fmt.Sprintf("%d damaged or changed artifacts, files and calls, %s", len(v.Faults),
			english.Plural(len(v.Differences), "difference", ""))
	}
	files := ""
	if v.Files > 0 {
		files = english.Plural(v.Files, "file", "") + " of the experiment, "
	}
	if v.Calls > 0 {
		files += english.Plural(v.Calls, "replayed call", "") + ", "
	}
	fmt.Fprintf(&b, "%s: %s, %s of figures, transcripts of %s, %s%s, all read completely: %s\n", page,
		english.Plural(v.Cells, "cell", ""), english.Plural(v.Values, "value", ""),
		english.Plural(v.Transcripts, "arm", ""), files, english.Plural(v.Artifacts, "artifact", ""), verdict)
	_, err := io.WriteString(w, b.String())
	return err
}

package slurm

import (
	"testing"
	"time"
)

// Recorded from Slurm 22.05, with a banner and a job of another program.
func TestJobsAreReadFromTheOutputOfSqueue(t *testing.T) {
	all := parseStates("Welcome to the cluster\n" +
		"rcgrpo|wrap|2|RUNNING|2026-11-23T03:35:13|n3|None\n" +
		"rcgrpo|rcgrpo-c813a714-53414919|7|PENDING|2026-11-23T03:35:03||Resources\n" +
		"rcgrpo|rcgrpo-c813a714-00000001|8|PENDING|N/A||JobHeldUser\n" +
		"rcgrpo|rcgrpo-c813a714-00000001|9|NODE_FAIL|2026-11-23T03:35:03|n1|RaisedSignal:9(Killed)|x\n")
	if len(all) != 2 {
		t.Errorf("got %v, want two jobs", all)
	}
	st := all["rcgrpo-c813a714-53414919"]
	if want := "job 7 of Slurm waits: Resources, starts at Mon 03:35 at the latest"; st.Text() != want || !st.waits() {
		t.Errorf("got %q, want %q", st.Text(), want)
	}
	if st := all["rcgrpo-c813a714-00000001"]; st.ID != "8" || st.Text() != "job 8 of Slurm waits: JobHeldUser" {
		t.Errorf("got %+v, want the job that has not ended", st)
	}
}

func TestLimitsOfPartitionsAreRead(t *testing.T) {
	for text, want := range map[string]time.Duration{"infinite": 0, "1-00:00:00": 24 * time.Hour, "1:00:00": time.Hour,
		"30:00": 30 * time.Minute, "2-12:00:00": 60 * time.Hour, "n/a": 0, "": 0} {
		if got := parseLimit(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestAnswersOfSbatchAreToldApart(t *testing.T) {
	const failed = "sbatch: error: Batch job submission failed: "
	for text, want := range map[string]string{
		failed + "Socket timed out on send/recv operation":                       "uncertain",
		failed + "Unable to contact slurm controller (connect failure)":          "uncertain",
		"sbatch did not answer within 1m0s":                                      "uncertain",
		"sbatch: error: Slurm temporarily unable to accept job, sleeping":        "not now",
		failed + "Job violates accounting/QOS policy (job submit limit, user's)": "not now",
		failed + "Invalid partition name specified":                              "refused",
		failed + "Requested node configuration is not available":                 "refused",
	} {
		got := "refused"
		if matches(notNow, text) {
			got = "not now"
		} else if matches(uncertain, text) {
			got = "uncertain"
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
}

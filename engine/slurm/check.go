package slurm

import (
	"cmp"
	"context"
	"fmt"
	"strings"
)

// Finding is a line of a check. A problem makes stages fail.
type Finding struct {
	Text    string
	Problem bool
}

func found(format string, args ...any) Finding { return Finding{Text: fmt.Sprintf(format, args...)} }

func problem(format string, args ...any) Finding { return Finding{fmt.Sprintf(format, args...), true} }

// Check reports the version of Slurm, its partitions, limits and accounting.
func (x *Executor) Check(ctx context.Context) []Finding {
	config, err := x.config(ctx)
	if err != nil {
		return []Finding{problem("%v", err)}
	}
	all := []Finding{found("Slurm %s, cluster %s", config["SLURM_VERSION"], config["ClusterName"])}
	all = append(all, x.checkPartitions(ctx)...)
	all = append(all, found("limits: at most %d jobs of this site file at once, %s of the cluster", x.Jobs,
		config["MaxJobCount"]))
	accounting := strings.TrimPrefix(config["AccountingStorageType"], "accounting_storage/")
	if accounting == "none" || accounting == "(null)" {
		accounting = "none (no stage needs it)"
	} else {
		accounting += " on " + config["AccountingStorageHost"]
		if _, err := x.command(ctx, "", "sacct", "-n", "-X", "-j", "1"); err != nil {
			accounting += fmt.Sprintf(" does not answer (no stage needs it): %v", err)
		}
	}
	return append(all, found("accounting: %s", accounting))
}

// checkPartitions reports all partitions. It is a problem if the one of the jobs is missing or not up.
func (x *Executor) checkPartitions(ctx context.Context) (all []Finding) {
	partitions, err := x.partitions(ctx)
	if err != nil {
		return []Finding{problem("%v", err)}
	}
	up := false
	for _, p := range partitions {
		mark := ""
		if p.used {
			mark, up = " (used)", up || p.state == "up"
		}
		all = append(all, found("partition %s%s: %s, limit %s, %s", p.name, mark, p.state, p.limit, p.hosts))
	}
	if !up {
		all = append(all, problem("partition %s is missing or not up: jobs are refused or wait",
			cmp.Or(x.partition(), "(default)")))
	}
	return all
}

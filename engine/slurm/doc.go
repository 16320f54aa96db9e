// Package slurm executes stages as jobs of a Slurm cluster, through Slurm's commands.
//
// New returns the Executor of a block of the site file. Each attempt at a stage is one job, which one call of sbatch
// submits, and has files of its own in the store, jobs/KEY. The spec N is created before the job is submitted. The job
// creates N.alive and touches it while it runs, and N.exit, the exit file, at its end. These files, not Slurm, say how
// a stage ended; Slurm is asked only about attempts without an exit file. An engine that finds the spec of another
// engine, which has ended, adopts the job. A job that finds a spec N+1 ends, so two attempts never share a scratch
// folder.
//
// # How an attempt ends
//
// The exit file has the cause of the end. Without one, job.endOf translates the state that Slurm reports (job.go);
// stage.decide says what follows:
//
//	done                    the result is committed
//	failed                  the stage fails; its `retry` may name the failure
//	host, preempted         a new job resumes from the last checkpoint, after a host also without that host; it counts
//	                        for free_attempts, not for `retry`
//	time                    a new job resumes from the checkpoint, if the stage made progress since the limit before
//	cancelled               the stage fails
//	replaced                there is a newer attempt
//	stopped                 SIGTERM or SIGINT; if this engine has not sent it, job.whyStopped asks Slurm for the reason:
//	                        FAILED and COMPLETED are cancelled, a job that Slurm no longer lists is preempted, and
//	                        job.endOf translates the other states
//
// Where no engine waits for the job, the next run that finds its end submits a new one.
//
// So a host that crashes ends a job as host. A host that reboots in order first sends SIGTERM to all processes: the
// stage stops after a checkpoint, and the job exits with 1. What follows depends on the state that Slurm reports:
//
//	NODE_FAIL               a new job
//	FAILED, COMPLETED       the stage fails, as after a signal by hand; the next run resumes from the checkpoint
//
// With `requeue` a stopped job leaves no exit file: Slurm starts it again, or reports FAILED, and the stage fails with
// the cause killed. A later engine, which has not seen the job run, submits a new one on another host.
//
// A killed engine leaves its jobs alone. One that gets SIGTERM cancels those in the queue and stops the others after a
// checkpoint.
//
// Main is the main function of a job. It supervises the process of the stage, which runs as on one machine (package
// engine).
package slurm

// Package slurm executes stages as jobs of a Slurm cluster, through Slurm's commands.
//
// New returns the Executor of a block of the site file. Each attempt at a stage is one job, which one call of sbatch
// submits, and has files of its own in the store, jobs/KEY. The spec N is created before the job is submitted. The job
// creates N.alive and touches it while it runs, and N.exit, the exit file, at its end. These files, not Slurm, say how
// a stage ended; Slurm is asked only about attempts without an exit file. An engine that finds the spec of another
// engine, which has ended, adopts the job. A job that finds a spec N+1 ends, so two attempts never share a scratch
// folder.
//
// Main is the main function of a job. It supervises the process of the stage, which runs as on one machine (package
// engine).
package slurm

// Package slurm executes stages as jobs of a Slurm cluster, through Slurm's commands.
//
// New returns the Executor of a block of the site file. Each attempt at a stage is one job, which one call of sbatch
// submits, and has files of its own in the store, jobs/KEY: the record N is created before the job is submitted, N.job
// by the job itself, N.beat while it runs, and N.exit at its end. These files, not Slurm, say how a stage ended;
// Slurm is asked for the others. An engine that finds the record of another engine, which has ended, adopts the job. A
// job that finds a record N+1 ends, so two attempts never share a scratch folder.
//
// Main is the main function of a job. It supervises the process of the stage, which runs as on one machine (package
// engine).
package slurm

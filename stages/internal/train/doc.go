// Package train is the part of a training that sft and grpo have in common: the settings, the scratch folder that
// a killed stage resumes from, the loop over updates, the curve and the ports.
//
//	Settings   settings of all trainings: schedule, optimizer, micro-batches, precision, adapter, checkpoints
//	Training   a training in progress; a kind calls Open, ResumeShorter, Loop, Publish, Close; needs libtorch
//	Parts      the partial gradients of a batch, which the ranks share; needs libtorch
//	Log        rows of the port metrics
//	Skipped    a sequence of a batch that was skipped because its gradient is not finite
//
// Start with Training. The kind supplies the update itself. Neighbours: checkpoint (the policy), resume (the
// files).
package train

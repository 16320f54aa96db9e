// Package grpo contains the stage kinds `grpo` and `rc-grpo`: group relative policy optimization, unconditioned
// (Shao et al. 2024) and with a reward token drawn per rollout (paper, section 3.2).
//
// The reference policy is the frozen checkpoint `policy`, under the same reward token. The learning rate follows
// updates, not optimizer steps.
//
// # One update
//
// This is training.update from sampling to optimizer step, with the names of the functions and without errors, times
// and alternatives. G is the size of a group, B = batch × G the number of trajectories.
//
//	update(u):
//	    // Rollouts. Every random number is a function of seed, update, task and member, so a resumed attempt samples
//	    // the same episodes. The log of the scratch folder has the episodes that ended already.
//	    groupSource.rollout(u):
//	        tasks = groupSource.next(batch)                 // course.at: all tasks in a new order in each pass
//	        for each task:                                  // groupSource.rollouts
//	            tokens = conditioning.draw(u, task)         // rc-grpo: rl.DrawTokens, one token per member (eq. 3)
//	            for member in 0..G-1:
//	                rollouts += rl.Rollout{task, u, member, tokens[member]}
//	        training.collect(rollouts):                     // the ranks share the groups: training.spread
//	            recorder.collect                            // trajectories that an earlier attempt logged
//	            rl.Collector.Collect(the others):           // one goroutine per episode
//	                environment.Start(task)
//	                until the episode stops:                // collection.converse
//	                    reply = rl.Local.Reply(news)        // Codec encodes, Batcher samples with Stream of the member
//	                    IDs, Mask, Logp += given, sampled   // Trajectory.add: Mask is true where the policy sampled
//	                    news = environment.Step(reply.Calls)
//	                Reward = environment.Verdict            // Trajectory.judge
//	        rl.Rewarded                                     // more than 5 % without a reward end the stage
//	        with zero_variance = "resample": groups of equal rewards are replaced, at most 4 rounds
//
//	    // Learning.
//	    b = newBatch(trajectories)                          // rows: one per trajectory, one more per agent segment
//	    settings.completeBatch(b):
//	        if the update makes several steps:
//	            b.LogpOld = Trainer.Stats                   // of the training forward, so the first ratio is 1
//	        if kl.place = "reward": klPenalty = Objective.KLPenalty
//	        b.Advantage, b.Skip = Objective.Advantages:     // Advantage.OfEpisodes (eq. 6), then zero_variance = "skip"
//	            Objective.ShapedRewards                     // reward + reward terms - KL penalty
//	    conditioning.restrict(b)                            // tokens.learn = "high": no policy gradient under low
//	    for each pass, for each minibatch:                  // updateBatch.minibatches; one step by default
//	        settings.accumulate(minibatch):
//	            for each partial gradient:                  // train.Each; gradient_parts, shared by the ranks
//	                Trainer.Accumulate:                     // forward in micro-batches of micro_batch tokens
//	                    logp, entropy, KL of the tokens of the mask, logp of the reference policy
//	                    Objective.Evaluate                  // eq. 7 to 9: ratio, clip, KL; loss and d loss / d logp
//	                    backward with these derivatives
//	        Trainer.Update(Schedule.Rate(u))                // sums over ranks, clips the norm, AdamW
//	        if the gradient is not finite: the step is skipped, and training.dump stores its batch
//
//	    // Log.
//	    updateBatch.describe, describeOutcome               // the values of objective.Metrics
//	    every evaluate.every updates: training.evaluate     // held-out tasks; the best policy is saved
//	    train.Log.Write(metrics), stored trajectories       // ports metrics and trajectories
//
// train.Training.Loop calls update, saves a state when one is due, and resumes after the last one. Training.update and
// learn are in run.go, sampling in groups.go, conditioning.go and recorder.go, rows in batch.go, evaluation and
// forecast in measure.go.
//
// # The mask
//
// The mask of a sequence is true on the tokens that the policy sampled. It is made where the ids are stored:
//
//   - of a conversation by Trajectory.appendIDs (stages/rl/trajectory.go): ids with logprobs were sampled, ids without
//     were given (prompt, results of tools, headers);
//   - of the requests of an agent in the same way by episode.sampled (stages/internal/agent/episode.go);
//   - for fine-tuning by chat.Encode (stages/internal/chat/chat.go): true on the replies, of experts too, and false on
//     messages that an agent wrote itself.
//
// It is applied in the model. newBatch (batch.go), and examples in fine-tuning (stages/sft/run.go), pass it as
// lm.Sequence.Mask. Model.pack (stages/internal/lm/pass.go) makes a prediction of the token at t+1 only if the mask is
// true there, so logprobs, entropy, KL and gradients exist for these tokens only. objective.NewBatch
// (stages/rl/objective/loss.go) reads the mask for the lists of the loss, which have one entry for each of these tokens
// in the same order: turns, logprobs when sampled, and the number of tokens of each row.
//
// # Random numbers
//
// They are those of rl.Stream, whose comment lists those of an episode (stages/rl/stream.go), except for the order of
// the tasks, the tasks of the forecast and the initial adapter, which use Job.Rand.
//
// Neighbours: stages/rl (what a trajectory is; its Example computes one group by hand), rl/objective (loss),
// internal/lm (model and optimizer), internal/train (what all trainings share).
package grpo

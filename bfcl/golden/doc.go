// Package golden replays recorded trajectories of the official Python code and compares every
// result, state and verdict. Start with Replay or ReplayFile, which return a Report. The command
// "rcgrpo bfcl replay" and the tests of bfcl use it.
package golden

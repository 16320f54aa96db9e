package slurm

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"rcgrpo/engine"
)

// gangNode returns the place of this node among those of a job.
func (a *attempt) gangNode() (at engine.GangNode, err error) {
	if a.Nodes <= 1 {
		return at, nil
	}
	at = engine.GangNode{Count: a.Nodes, Start: fmt.Sprintf("%d-%s", a.n, cmp.Or(os.Getenv("SLURM_RESTART_COUNT"), "0"))}
	if at.Index, err = strconv.Atoi(os.Getenv("SLURM_PROCID")); err != nil {
		return at, fmt.Errorf("srun has not started this process: SLURM_PROCID: %w", err)
	}
	first := os.Getenv("SLURM_LAUNCH_NODE_IPADDR")
	c, err := net.Dial("udp", net.JoinHostPort(first, "9")) // sends nothing, but selects the network to the first node
	if err != nil {
		return at, err
	}
	defer c.Close()
	at.Address = c.LocalAddr().(*net.UDPAddr).IP.String()
	return at, nil
}

// assist runs the ranks of a node that is not the first. The job on the first node has the claim, the signs of life and
// the record of the end. It returns an error after that record if a rank here has failed.
func (a *attempt) assist(ctx context.Context, at engine.GangNode) error {
	over := func() bool {
		_, ended := a.exit()
		return ended
	}
	for !over() && !at.Started(a.Run, a.Address) && ctx.Err() == nil {
		time.Sleep(200 * time.Millisecond)
	}
	if ctx.Err() != nil || over() {
		return nil
	}
	assignment, err := a.Run.Assignment(a.Address)
	if err != nil {
		return err
	}
	end, err := a.process(ctx, nil, assignment, os.Stdout, fmt.Sprintf("holder%d", at.Index))
	if err == nil && end.Code == 0 && end.Signal == 0 {
		return nil
	}
	for since := time.Now(); !over() && time.Since(since) < stopWithin; { // srun ends all nodes with this process
		time.Sleep(200 * time.Millisecond)
	}
	return fmt.Errorf("the ranks of node %s have failed", nodeName())
}

package stages

import (
	"rcgrpo/stages/internal/chat"
	"rcgrpo/stages/internal/checkpoint"
	"rcgrpo/stages/rl"
)

// Piece is a part of a trajectory as a policy reads it.
type Piece struct {
	Text   string // special tokens included
	Tokens int
	Mask   bool // sampled by the policy: with loss, ratio, divergence and entropy
}

// Pieces returns a function that divides trajectories into pieces as the policy of a checkpoint folder reads
// them, under their reward token. Pieces with Mask are the mask of a training. A trajectory that the chat template
// refuses is one piece, the error.
func Pieces(dir, benchmark string) (func(*rl.Trajectory) []Piece, error) {
	codec, err := checkpoint.OpenCodec(dir, benchmark)
	if err != nil {
		return nil, err
	}
	return func(t *rl.Trajectory) []Piece {
		ids, mask, err := chat.Encode(codec, t, t.Token)
		if err != nil {
			return []Piece{{Text: err.Error()}}
		}
		var pieces []Piece
		for from := 0; from < len(ids); {
			to := from
			for to < len(ids) && mask[to] == mask[from] {
				to++
			}
			pieces = append(pieces, Piece{codec.Text(ids[from:to]), to - from, mask[from]})
			from = to
		}
		return pieces
	}, nil
}

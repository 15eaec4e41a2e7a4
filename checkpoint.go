package postern

import (
	"context"

	"github.com/populationgenomics/postern-go/checkpoint"
	"github.com/populationgenomics/postern-go/workspace"
)

// Checkpoint saves the workspace, or the part of it that the options name, to
// a store, as [checkpoint.Save] does. It is no snapshot of a guest that runs:
// take it between runs.
func (s *Sandbox) Checkpoint(ctx context.Context, store checkpoint.Store, key string, o checkpoint.SaveOptions) (checkpoint.Report, error) {
	ws, err := s.Accessor()
	if err != nil {
		return checkpoint.Report{}, err
	}
	defer ws.Close()
	return checkpoint.Save(ctx, ws, store, key, o)
}

// Restore brings a checkpoint back into the workspace, as [checkpoint.Load]
// does. If the profile's HostUID applies and the options have no owner, the
// files are that user's, so that the guest can use them.
func (s *Sandbox) Restore(ctx context.Context, store checkpoint.Store, key string, o checkpoint.LoadOptions) (workspace.Report, error) {
	ws, err := s.Accessor()
	if err != nil {
		return workspace.Report{}, err
	}
	defer ws.Close()
	if o.Owner == nil {
		o.Owner = s.owner()
	}
	return checkpoint.Load(ctx, ws, store, key, o)
}

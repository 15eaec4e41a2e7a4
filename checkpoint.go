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
		o.Owner = s.profile.owner()
	}
	return checkpoint.Load(ctx, ws, store, key, o)
}

// owner is the host's user and group that guests run as, if that is not the
// host program's own.
func (p Profile) owner() *workspace.Owner {
	if p.HostUID == nil || !isRoot() {
		return nil
	}
	const unchanged = -1
	o := &workspace.Owner{UID: int(*p.HostUID), GID: unchanged}
	if p.HostGID != nil {
		o.GID = int(*p.HostGID)
	} else if g := p.GuestGID.number(); g != nil {
		o.GID = int(*g)
	}
	return o
}

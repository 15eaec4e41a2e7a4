package postern

import (
	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/hatch/connector"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/profile"
)

// wayTo is what a guest needs to find its hatches.
//
// The sockets are read-only, which one can connect to all the same, so that a
// guest cannot change the mode of one it shares with others.
func wayTo(hatches []hatch.Hatch) profile.Extra {
	var x profile.Extra
	for _, h := range hatches {
		x.Env = append(x.Env, hatch.EnvVar(h.Name())+"="+hatch.GuestPath(h.Name()))
		x.Mounts = append(x.Mounts, mounts.Bind{Source: h.SocketPath(), Dest: hatch.GuestPath(h.Name())})
	}
	if !connector.Wanted(hatches) {
		return x
	}
	x.Env = append(x.Env, connector.EnvVar+"="+connector.Path)
	// Raw streams are reached with this program. Where there is no stage for
	// the architecture to make it of, the launch fails too.
	if image, err := connector.Image(); err == nil {
		x.Mounts = append(x.Mounts, mounts.BindData{Dest: connector.Path, Data: string(image), Perm: mounts.Perm(0o555), Mode: mounts.ReadOnly})
	}
	return x
}

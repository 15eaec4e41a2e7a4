package profile

import (
	"fmt"

	"github.com/populationgenomics/postern-go/mounts"
)

// The code of a Command is a file in the guest, so that whatever Python does
// with a script works on it: source lines in tracebacks, inspect, the spawning
// of multiprocessing. It is part of the launch image, and of no argv.
//
// A limit on the address space must wait until the interpreter is up. Python
// itself offers a place for that: it imports a module sitecustomize, if there
// is one, when it is and before it runs a script. Ours sets the limit, takes
// back every trace of itself and lets another sitecustomize have its turn.
const bootScript = `import resource, sys, os
resource.setrlimit(resource.RLIMIT_AS, (%[1]d, %[1]d))
sys.path[:] = [p for p in sys.path if p != %[2]q]
_prior = os.environ["PYTHONPATH"].split(os.pathsep)[1:]
if _prior:
    os.environ["PYTHONPATH"] = os.pathsep.join(_prior)
else:
    del os.environ["PYTHONPATH"]
_me = sys.modules.pop("sitecustomize")
sys.path_importer_cache.pop(%[2]q, None)
import sitecustomize
`

func (p Profile) bootsPython(cmd Command) bool { return cmd.Python != "" && p.Limits.AddressSpace > 0 }

func (p Profile) pythonFiles(cmd Command) []mounts.Op {
	if cmd.Python == "" {
		return nil
	}
	file := func(dest, data string) mounts.Op {
		return mounts.File{Dest: dest, Data: data, Perm: mounts.Perm(0o444)}
	}
	ops := []mounts.Op{file(pythonMain, cmd.Python)}
	if p.bootsPython(cmd) {
		ops = append(ops, file(pythonBoot+"/sitecustomize.py", fmt.Sprintf(bootScript, p.Limits.AddressSpace, pythonBoot)))
	}
	return ops
}

func (p Profile) python() string {
	if p.Python == "" {
		return DefaultPython
	}
	return p.Python
}

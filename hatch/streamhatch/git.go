package streamhatch

import (
	"path/filepath"

	"github.com/populationgenomics/postern-go/hatch/connector"
)

// GitURL is the URL at which git in the guest reaches the hatch with this name:
//
//	git -c protocol.ext.allow=always clone URL work
//
// See [connector.GitURL].
func GitURL(name string) string { return connector.GitURL(name) }

// gitDir is where the command has the repository, so that no message of git's
// has a path of the host.
const gitDir = "/repository"

// gitConfig overrides what the repository's own configuration could make git
// run or look at. A guest that can write to the repository writes that too.
var gitConfig = []string{
	"safe.directory=*", // the host chose it
	"core.hooksPath=/dev/null",
	"core.fsmonitor=false",
	"core.alternateRefsCommand=true", // that is /bin/true, which knows of no refs
	"core.sshCommand=false",
	"core.gitProxy=false",
	"core.askPass=false",
	"credential.helper=",
	"protocol.allow=never",
	"gpg.program=false",
	"gpg.ssh.program=false",
	"gpg.x509.program=false",
	"gc.auto=0",
	"maintenance.auto=false",
	"receive.autoGC=false",
	"receive.denyCurrentBranch=refuse", // or a push could check out files, and run filters
	"receive.updateServerInfo=false",
}

// GitUploadPack serves clones and fetches of the repository at this absolute
// path, which is a bare one or the .git directory of another. It grants nothing
// else: not another repository, and not a push.
//
// Git runs in a [Sandbox] which has only the repository, read-only; as root, it
// runs as the repository's owner. It has no configuration of the system or of a
// user and no hooks, and what the repository's own configuration could make it
// run is overridden. So the repository may be one that guests can write to.
// Objects borrowed from other repositories (alternates) are not there.
func GitUploadPack(repo string) *Command { return gitService("upload-pack", repo, false) }

// GitReceivePack is GitUploadPack for pushes. The repository is writable for it,
// its hooks do not run.
func GitReceivePack(repo string) *Command { return gitService("receive-pack", repo, true) }

func gitService(service, repo string, writable bool) *Command {
	c := &Command{
		Args: []string{"git"},
		Env: []string{
			"PATH=" + DefaultPath,
			"LC_ALL=C",
			"GIT_CONFIG_NOSYSTEM=1",
			"GIT_CONFIG_GLOBAL=/dev/null",
			"GIT_ATTR_NOSYSTEM=1",
			"GIT_TERMINAL_PROMPT=0",
			"GIT_NO_LAZY_FETCH=1",
		},
		Dir:     gitDir,
		Sandbox: &Sandbox{Binds: []Bind{{Host: repo, Path: gitDir, Writable: writable}}},
	}
	for _, setting := range gitConfig {
		c.Args = append(c.Args, "-c", setting)
	}
	c.Args = append(c.Args, service)
	if service == "upload-pack" {
		c.Args = append(c.Args, "--strict") // not DIR/.git for DIR
	}
	c.Args = append(c.Args, ".")
	if !filepath.IsAbs(repo) {
		c.err = &CommandError{Field: "Sandbox", Reason: "has the repository " + repo + ", which is not an absolute path"}
		return c
	}
	var err error
	if c.User, err = owner(repo); err != nil {
		c.err = &CommandError{"Sandbox", "has a repository that cannot be found: " + err.Error(), err}
	}
	return c
}

# A repository's life. Prints "fine" at the end.
set -euo pipefail
cd "$(mktemp -d)"
export HOME=$PWD GIT_CONFIG_NOSYSTEM=1
git config --global user.name n
git config --global user.email e
git init -q one
cd one
echo a >f; git add f; git commit -qm first
git checkout -qb side; echo b >>f; git commit -qam second; git checkout -q -; git merge -q side
git gc -q; git fsck 2>/dev/null
git clone -q . ../two
git clone -q "file://$PWD" ../three
git -C ../three log --oneline | wc -l | grep -qx 2
git worktree add -q ../tree side
git stash list; git diff --stat HEAD~1 >/dev/null
echo fine

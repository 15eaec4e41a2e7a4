# Makes a runtime and an application of flatpak's, in the directory it is
# started in, and runs them. Argument: the program to call as bwrap.
set -e
export FLATPAK_BWRAP=$1
export HOME=$PWD/home XDG_RUNTIME_DIR=$PWD/run
unset XDG_DATA_HOME XDG_CACHE_HOME XDG_CONFIG_HOME
# An ordinary user may install only what parental controls allow, which are
# asked for on the system's bus.
export DBUS_SYSTEM_BUS_ADDRESS=$DBUS_SESSION_BUS_ADDRESS
mkdir -p runtime/files/bin home
mkdir -m 700 run
echo host >file

arch=$(flatpak --default-arch)
# All that there is in this runtime.
cp /bin/busybox runtime/files/bin/busybox
for name in sh cat echo env grep id ls mkdir mount sed sort touch wc; do
    ln -s busybox "runtime/files/bin/$name"
done
cat >runtime/metadata <<EOF
[Runtime]
name=org.example.Platform
runtime=org.example.Platform/$arch/1
sdk=org.example.Platform/$arch/1
EOF

{
    flatpak build-export --runtime --files=files repository runtime 1
    flatpak remote-add --user --no-gpg-verify here repository
    flatpak install --user --noninteractive here org.example.Platform
    flatpak build-init application org.example.App org.example.Platform org.example.Platform 1
} >log 2>&1 || cat log

look='id; env | grep -E "^(FLATPAK_ID|PATH|XDG_RUNTIME_DIR|container)="
grep -E "^(Cap|NoNewPrivs|Seccomp:)" /proc/self/status
ls -A1 / /app /usr /run /var; ls -l /proc/self/fd | wc -l; cat /.flatpak-info | grep -E "^(name|runtime)="
for p in /usr/x /app/x /var/x /etc/x /tmp/x /x $XDG_DATA_HOME/x; do
    echo y 2>/dev/null >$p && echo "$p can be written"
done
mount | sed "s,/\.flatpak/[0-9]*,/.flatpak/N," | grep -v " on /proc/" | sort'

echo '--- build'
status=0
flatpak build application sh -c "mkdir -p /app/bin; $look; exit 5" || status=$?
echo "exit $status"

{
    echo '#!/bin/sh'
    echo 'echo "arguments: $*"; cat; echo err >&2; cat file'
    echo "$look; exit 7"
} >application/files/bin/app
chmod 755 application/files/bin/app
{
    flatpak build-finish --command=app application
    flatpak build-export repository application 1
    flatpak install --user --noninteractive here org.example.App
} >log 2>&1 || cat log

run() {
    echo "--- run $*"
    status=0
    echo in | flatpak run "$@" || status=$?
    echo "exit $status"
}
run org.example.App a 'b c'
run --filesystem="$PWD:ro" org.example.App
run --share=network --share=ipc --device=all --allow=multiarch org.example.App
run --command=sh org.example.App -c 'kill -KILL $$'
run --command=missing org.example.App
run --sandbox --command=cat org.example.App /app/bin/app

# What people type. Prints "fine" at the end.
set -euo pipefail
cd "$(mktemp -d)"
test "$(seq 3 | sort -r | paste -sd,)" = 3,2,1
diff <(echo a) <(echo a)
read -r word <<<"here"; test "$word" = here
( sleep 0 & wait )
coproc cat; echo x >&"${COPROC[1]}"; read -r y <&"${COPROC[0]}"; test "$y" = x
trap 'got=1' USR1; kill -USR1 $$; test "$got" = 1
mkdir -p a/b; mkfifo f; ln -s a l; touch a/b/c; chmod -R u+rwX,go-w a; chmod 1777 a
cp -a a a2; tar cf t.tar a; mkdir o; tar xf t.tar -C o; rm -rf o
test "$(find a2 -type f | wc -l)" = 1
install -m 755 /dev/null tool; stat -c %a tool | grep -qx 755
uname -a >/dev/null; df . >/dev/null; ps >/dev/null || true; id >/dev/null
date >/dev/null; nice true; timeout 60 true; setsid true; nohup true 2>/dev/null
echo fine

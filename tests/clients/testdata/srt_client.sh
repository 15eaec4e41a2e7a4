# Runs commands under srt, in the directory it is started in, and prints what
# came of it. Arguments: srt's program, and the port of a web server here.
srt=$1 port=$2
export HOME=$PWD
mkdir -p work/protected secret
echo secret >secret/file
cat >settings.json <<EOF
{
  "network": {"allowedDomains": ["127.0.0.1"], "deniedDomains": []},
  "filesystem": {"denyRead": ["$PWD/secret"], "allowWrite": ["$PWD/work"], "denyWrite": ["$PWD/work/protected"]}
}
EOF

try() {
    echo "--- $1"
    shift
    "$srt" --settings settings.json "$@" </dev/null
    echo "exit $?"
}

try words echo 'a  b' '$HOME' "it's"
try streams -c 'echo out; echo err >&2; exit 7'
try missing no-such-program
try signal -c 'kill -KILL $$'
try identity -c 'id; pwd; umask; grep -E "^(Cap|NoNewPrivs|Seccomp:)" /proc/self/status; ls -l /proc/self/fd | wc -l'
try init -c 'cat /proc/1/comm'
try read -c 'cat secret/file; ls secret; cat settings.json | wc -l'
try write -c 'echo x >work/new && cat work/new; echo x >outside; echo x >work/protected/x; echo x >.bashrc; mkdir -p work/.git/hooks && echo x >work/.git/hooks/x'
try socket -c 'python3 -c "import socket; socket.socket(socket.AF_UNIX)"  2>&1 | tail -1'
try network -c "python3 - <<'EOF'
import os, socket, urllib.request
os.environ.pop('no_proxy'), os.environ.pop('NO_PROXY')
for url in 'http://127.0.0.1:$port/', 'http://denied.test/':
    try:
        print(urllib.request.urlopen(url).read())
    except Exception as e:
        print(e)
try:
    socket.create_connection(('192.0.2.1', 80))
except OSError as e:
    print(e)
try:
    socket.create_connection(('127.0.0.1', $port))
except OSError as e:
    print(e)
EOF"
echo '--- standard input'
echo in | "$srt" --settings settings.json -c 'cat; exit 3'
echo "exit $?"

echo '--- left behind'
find . ! -name 'srt-mux-*' | sort

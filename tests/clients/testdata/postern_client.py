"""Uses the original postern in every way it offers, and prints what came of it.

The output is the same whenever the program called bwrap does the same. The
only argument is a Python environment with grpcio for the guest.
"""

import asyncio
import io
import os
import pathlib
import sys
import tarfile
import tempfile

import grpc

import postern
import postern.build_init
import postern.grpc
import postern.stream
from postern import Sandbox, SandboxProfile

VENV = sys.argv[1]
SYSTEM = '/usr/bin/python3'


def show(name, f):
    try:
        result = f()
    except Exception as e:
        result = f'{type(e).__name__}: {e}'
    print(f'{name}: {result!r}', flush=True)


def inits():
    yield 'python', None
    yield 'c', postern.build_init.build(pathlib.Path(tempfile.mkdtemp()) / 'init')


def profile(init, **fields):
    return SandboxProfile(init=init, python=SYSTEM, **fields)


def in_sandbox(use, *args, hatch=None, **fields):
    def f():
        with Sandbox(profile(*args, **fields), hatch=hatch) as sandbox:
            return use(sandbox)

    return f


def terminated(sandbox):
    # Without another process in the group, of whose end bash might tell. A
    # signal just before read waits is trapped when read returns, so it does.
    script = 'trap "echo stopping; exit 3" TERM; mkfifo /tmp/f; exec 3<>/tmp/f; echo ready; while :; do read -t 1 -u 3; done'
    with sandbox.start_bash(script) as process:
        first = next(process.output())
        process.terminate(grace=60)
        return first, process.communicate(60), process.terminated


def killed(sandbox):
    with sandbox.start(['sh', '-c', 'echo ready; exec sleep 1000']) as process:
        first = next(process.output())
        process.kill()
        # First the init is killed and then the launcher, which may have seen it.
        return first, process.communicate(60).returncode in (-9, 137)


def closed(sandbox):
    with sandbox.start(['sleep', '1000']) as process:
        pass
    return process.returncode is not None


def streamed(sandbox):
    with sandbox.start_python('import sys\nfor i in range(3): print(i); print(-i, file=sys.stderr)') as process:
        out = {'stdout': b'', 'stderr': b''}
        for stream, chunk in process.output():
            out[stream] += chunk
        return out, process.wait(60)


def asynchronous(sandbox):
    async def main():
        async with await sandbox.astart(['sh', '-c', 'echo a; exit 4']) as one:
            async with await sandbox.astart_python('print("b")') as two:
                return await one.communicate(60), await two.communicate(60)

    return asyncio.run(main())


def after(script, *args, **fields):
    """The workspace that a guest leaves, as the host sees it."""

    def use(sandbox):
        result = sandbox.run_bash(script)
        with sandbox.accessor() as workspace:
            entries = []
            for entry in sorted(workspace.iterdir(), key=lambda e: e.name):
                text = None
                try:
                    text = entry.read_text() if entry.is_file() else None
                except postern.WorkspaceError as e:
                    text = str(e)
                info = entry.lstat()
                entries.append((entry.name, oct(info.st_mode), info.st_uid == os.getuid(), text))
            packed = io.BytesIO()
            report = workspace.pack_tar(packed)
            packed.seek(0)
            names = sorted(tarfile.open(fileobj=packed, mode='r:*').getnames())
        return result, entries, report.ok, names

    return in_sandbox(use, *args, **fields)


def restored(sandbox):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode='w') as tar:
        info = tarfile.TarInfo('from/host')
        info.size, info.mode = 5, 0o644
        tar.addfile(info, io.BytesIO(b'hello'))
    packed.seek(0)
    with sandbox.accessor() as workspace:
        workspace.restore_tar(packed)
    return sandbox.run(['cat', '/workspace/from/host'])


GRPC = """
import os, grpc
channel = grpc.insecure_channel('unix:' + os.environ['POSTERN_HATCH'])
for method in ('Allowed', 'Denied'):
    call = channel.unary_unary('/svc.Echo/' + method, request_serializer=bytes, response_deserializer=bytes)
    try:
        print(method, call(b'ping', timeout=60))
    except grpc.RpcError as e:
        print(method, e.code().name)
"""


def through_grpc(init):
    hatch = postern.grpc.GrpcHatch(allowlist={'/svc.Echo/Allowed'})
    handler = grpc.unary_unary_rpc_method_handler(
        lambda request, _: request, request_deserializer=bytes, response_serializer=bytes
    )
    servicer = grpc.method_handlers_generic_handler('svc.Echo', {'Allowed': handler, 'Denied': handler})
    hatch.add_servicer(lambda s, server: server.add_generic_rpc_handlers((s,)), servicer)
    try:
        with Sandbox(SandboxProfile.with_venv(VENV, init=init), hatch=hatch) as sandbox:
            return sandbox.run_python(GRPC)
    finally:
        hatch.close()


STREAM = """
import os, socket
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ['POSTERN_HATCH_ECHO'])
s.sendall(b'ping')
s.shutdown(socket.SHUT_WR)
print(s.makefile().read())
try:
    socket.create_connection(('192.0.2.1', 80), 60)
except OSError as e:
    print(e)
"""


def through_stream(init):
    hatch = postern.stream.StreamHatch(postern.stream.splice_subprocess(['cat']), name='echo')
    try:
        return in_sandbox(lambda s: s.run_python(STREAM), init, hatch=hatch)()
    finally:
        hatch.close()


LOOK = r"""
id; pwd; umask; env | sort
grep -E '^(Cap|NoNewPrivs|Seccomp:|Groups|NSpid)' /proc/self/status
ls -A1 / /dev; ls -l /proc/self/fd | wc -l; cat /proc/sys/kernel/hostname > /dev/null && echo hostname
for p in /usr/x /etc/x /tmp/x /workspace/x /proc/sys/kernel/core_pattern /dev/x /x; do
    echo y 2>/dev/null >$p && echo "$p can be written"
done
unshare -U true; mount -t tmpfs none /tmp; echo /proc/[0-9]*
tr '\0' ' ' </proc/1/cmdline; cat /proc/1/environ; ls /nowhere
"""


def refused(**fields):
    def f():
        with Sandbox(SandboxProfile(python=SYSTEM, **fields)) as sandbox:
            sandbox.verify()

    return f


def main():
    print(postern.__version__, postern.available())
    host = pathlib.Path(tempfile.mkdtemp())
    (host / 'module.py').write_text('value = 42\n')
    for name, init in inits():
        print(f'--- {name} init')
        show('verify', in_sandbox(lambda s: s.verify(), init))
        show('look', in_sandbox(lambda s: s.run_bash(LOOK), init))
        show('look as root', in_sandbox(lambda s: s.run_bash(LOOK), init, guest_uid=None, guest_gid=None))
        show('run', in_sandbox(lambda s: s.run(['sh', '-c', 'echo out; echo err >&2; exit 5']), init))
        show('a missing program', in_sandbox(lambda s: s.run(['no-such-program']), init))
        show('death by signal', in_sandbox(lambda s: s.run_bash('kill -KILL $$'), init))
        show('python', in_sandbox(lambda s: s.run_python('import sys; print(6 * 7); sys.exit(7)'), init))
        show('exception', in_sandbox(lambda s: s.run_python('raise ValueError("no")'), init))
        show('timeout', in_sandbox(lambda s: s.run(['sleep', '1000'], timeout=0.5), init))
        show('limited output', in_sandbox(lambda s: s.run_bash('yes | head -c 100000', max_output=10), init))
        show('terminate', in_sandbox(terminated, init))
        show('kill', in_sandbox(killed, init))
        show('close', in_sandbox(closed, init))
        show('output', in_sandbox(streamed, init))
        show('asyncio', in_sandbox(asynchronous, init))
        show('processes', in_sandbox(lambda s: s.run_bash('ulimit -u'), init, rlimit_nproc=50))
        show('memory', in_sandbox(lambda s: s.run_bash('ulimit -v'), init, rlimit_as=1 << 30))
        show('too much memory', in_sandbox(lambda s: s.run_python('x = bytearray(1 << 31)'), init, rlimit_as=1 << 30))
        show('environment', in_sandbox(lambda s: s.run(['env']), init, env={'PATH': '/usr/bin', 'A': 'b c\n'}))
        show('stubs', in_sandbox(lambda s: s.run_python('import module; print(module.value)'), init, stubs=host))
        bind = [(str(host), '/data')]
        show('bind', in_sandbox(lambda s: s.run_bash('ls /data; touch /data/x'), init, required_ro_binds=bind))
        gone = [(str(host / 'gone'), '/data')]
        show('optional bind', in_sandbox(lambda s: s.run(['ls', '/data']), init, ro_binds=gone))
        show('missing bind', in_sandbox(lambda s: s.run(['true']), init, required_ro_binds=gone))
        show('no seccomp', in_sandbox(lambda s: s.run_bash('grep Seccomp: /proc/self/status'), init, seccomp=False))
        show('files', after('echo hi >a; mkdir d; ln -s /etc/passwd l; mkfifo p; echo x >d/x; chmod 755 a', init))
        show('restore', in_sandbox(restored, init))
        show('grpc', lambda: through_grpc(init))
        show('stream', lambda: through_stream(init))
    show('verify without seccomp', refused(seccomp=False))
    show('verify without python', refused(rootfs=host))
    show('verify another program', refused(init='/bin/true'))


main()

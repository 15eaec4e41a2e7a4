import java.net.*;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.concurrent.*;

/** Threads, processes, sockets and files of the JVM. Prints "fine" at the end. */
public class Everyday {
    public static void main(String[] args) throws Exception {
        var pool = Executors.newFixedThreadPool(4);
        if (pool.submit(() -> 6 * 7).get() != 42) throw new Error("pool");
        pool.shutdown();

        var dir = Files.createTempDirectory("java");
        var file = dir.resolve("f");
        Files.writeString(file, "text");
        Files.setPosixFilePermissions(file, PosixFilePermissions.fromString("rwxr-xr-x"));
        try (var channel = FileChannel.open(file)) {
            channel.map(FileChannel.MapMode.READ_ONLY, 0, 4).get();
        }
        FileSystems.getDefault().newWatchService().close();

        try (var server = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
             var client = new Socket(server.getInetAddress(), server.getLocalPort());
             var peer = server.accept()) {
            client.getOutputStream().write(7);
            if (peer.getInputStream().read() != 7) throw new Error("socket");
        }
        if (NetworkInterface.getNetworkInterfaces() == null) throw new Error("interfaces");
        if (new ProcessBuilder("sh", "-c", "exit 3").start().waitFor() != 3) throw new Error("process");
        System.gc();
        ByteBuffer.allocateDirect(1 << 20);
        System.out.println("fine");
    }
}

/* Hosts on one machine: network namespaces whose packets pass through this program, which delays or drops them.

       network COUNT

   Host k (0 … COUNT − 1) has a namespace of its own with the device `tun` and the address 10.25.0.(k + 1). The first line
   on standard output has the descriptors of the namespaces: `nsenter --net=/proc/PID/fd/DESCRIPTOR` starts a program
   there. Lines on standard input: `latency SECONDS` (one way, for all), `cut K` and `mend K`. At its end all is gone. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { HOSTS = 32, LONGEST = 1600, WAITING = 8192 };

typedef struct {
    long long due; /* ns */
    int host, length;
    unsigned char data[LONGEST];
} Packet;

static struct { int device, cut; } hosts[HOSTS];
static Packet waiting[WAITING];
static unsigned first, last; /* of the packets on their way: a ring, since all take equally long */
static long long latency;

static void require(int good, const char *what) {
    if (good) return;
    perror(what);
    exit(1);
}

static long long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void raise_device(const char *name, const char *address) {
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    struct ifreq request = {0};
    struct sockaddr_in *place = (struct sockaddr_in *)&request.ifr_addr;
    strcpy(request.ifr_name, name);
    place->sin_family = AF_INET;
    if (address) {
        inet_pton(AF_INET, address, &place->sin_addr);
        require(!ioctl(s, SIOCSIFADDR, &request), "address");
        inet_pton(AF_INET, "255.255.255.0", &place->sin_addr);
        require(!ioctl(s, SIOCSIFNETMASK, &request), "netmask");
    }
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    require(!ioctl(s, SIOCSIFFLAGS, &request), "device");
    close(s);
}

/* A namespace with its device; the descriptor of the namespace. */
static int make_host(int k) {
    char address[32];
    struct ifreq request = {0};
    snprintf(address, sizeof address, "10.25.0.%d", k + 1);
    require(!unshare(CLONE_NEWNET), "network namespace");
    hosts[k].device = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    strcpy(request.ifr_name, "tun");
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    require(hosts[k].device >= 0 && !ioctl(hosts[k].device, TUNSETIFF, &request), "/dev/net/tun");
    raise_device("lo", NULL);
    raise_device("tun", address);
    return open("/proc/self/ns/net", O_RDONLY);
}

/* Packets that a host sends begin their way; those to nobody, and those that find no place, are lost as in any network. */
static void take(int k) {
    Packet *packet;
    while (last - first < WAITING && (packet = &waiting[last % WAITING],
           packet->length = (int)read(hosts[k].device, packet->data, LONGEST)) > 0) {
        int to = packet->length >= 20 && packet->data[0] >> 4 == 4 ? packet->data[19] - 1 : -1;
        if (to < 0 || to >= HOSTS || !hosts[to].device || hosts[k].cut || hosts[to].cut) continue;
        packet->host = to;
        packet->due = now() + latency;
        last++;
    }
}

static void deliver(void) {
    for (; first != last && waiting[first % WAITING].due <= now(); first++) {
        Packet *packet = &waiting[first % WAITING];
        if (write(hosts[packet->host].device, packet->data, (size_t)packet->length) < 0) continue;
    }
}

/* Lines of standard input; whether it goes on. */
static int obey(void) {
    static char line[256];
    double value;
    ssize_t length = read(0, line, sizeof line - 1);
    if (length <= 0) return 0;
    line[length] = 0;
    for (char *word = strtok(line, "\n"); word; word = strtok(NULL, "\n")) {
        if (sscanf(word, "latency %lf", &value) == 1) latency = (long long)(value * 1e9);
        if (sscanf(word, "cut %lf", &value) == 1) hosts[(int)value].cut = 1;
        if (sscanf(word, "mend %lf", &value) == 1) hosts[(int)value].cut = 0;
    }
    return 1;
}

int main(int count, char **words) {
    int n = count > 1 ? atoi(words[1]) : 0;
    struct pollfd sources[HOSTS + 1] = {{0, POLLIN, 0}};
    require(n > 0 && n < HOSTS, "COUNT");
    prctl(PR_SET_TIMERSLACK, 1000UL);
    for (int k = 0; k < n; k++) printf("%d ", make_host(k));
    puts("");
    fflush(stdout);
    for (int k = 0; k < n; k++) sources[k + 1] = (struct pollfd){hosts[k].device, POLLIN, 0};
    for (;;) {
        long long left = first == last ? 1000000000 : waiting[first % WAITING].due - now();
        struct timespec most = {0, left < 0 ? 0 : left > 999999999 ? 999999999 : (long)left};
        ppoll(sources, (nfds_t)n + 1, &most, NULL);
        deliver();
        for (int k = 0; k < n; k++)
            if (sources[k + 1].revents) take(k);
        if (sources[0].revents && !obey()) return 0;
    }
}

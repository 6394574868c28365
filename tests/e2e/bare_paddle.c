/* `paddle` for an image that holds nothing else: no Python, no shell, no libraries but musl. In the place of learning it
 * counts: in every pass each trainer sends the number of its shard's lines to every pserver, gets their sum over all
 * trainers, and trainer 0 writes it to pass-NNNNN/lines. Flags are those of Paddle v0; unknown ones are ignored. */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST = 64 };

static char **words;

static void fail(const char *what) {
    perror(what);
    exit(134);
}

static const char *flag(const char *name) {
    size_t length = strlen(name);
    const char *value = NULL;
    for (char **word = words; *word; word++)
        if (!strncmp(*word, "--", 2) && !strncmp(*word + 2, name, length) && (*word)[length + 2] == '=')
            value = *word + length + 3;
    if (!value) {
        fprintf(stderr, "--%s is missing\n", name);
        exit(1);
    }
    return value;
}

static int number(const char *name) { return atoi(flag(name)); }

static struct sockaddr_in place(const char *host, int port) {
    struct sockaddr_in made = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (!inet_pton(AF_INET, host, &made.sin_addr))
        fail(host);
    return made;
}

static uint64_t receive(int from) {
    uint64_t value;
    if (recv(from, &value, sizeof value, MSG_WAITALL) != sizeof value)
        fail("receive");
    return value;
}

static void give(int to, uint64_t value) {
    if (send(to, &value, sizeof value, MSG_NOSIGNAL) != sizeof value)
        fail("send");
}

static int listen_on(int port) {
    struct sockaddr_in here = place("0.0.0.0", port);
    int listening = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (bind(listening, (struct sockaddr *)&here, sizeof here) || listen(listening, MOST))
        fail("listen");
    return listening;
}

/* Serves one job and never ends by itself, like the original. */
static void pserver(void) {
    int trainers[MOST], count = number("num_gradient_servers"), port = number("port");
    uint64_t passes = 0;
    int first = listen_on(port);
    for (int more = number("ports_num") + number("ports_num_for_sparse") - 1; more > 0; more--)
        listen_on(port + more);
    for (int i = 0; i < count; i++) {
        if ((trainers[i] = accept(first, NULL, NULL)) < 0)
            fail("accept");
        passes = receive(trainers[i]);
    }
    for (; passes > 0; passes--) {
        uint64_t sum = 0;
        for (int i = 0; i < count; i++)
            sum += receive(trainers[i]);
        for (int i = 0; i < count; i++)
            give(trainers[i], sum);
    }
    for (;;)
        pause();
}

static uint64_t lines_of_shard(void) {
    char name[4096];
    uint64_t lines = 0;
    FILE *list = fopen("data/train.list", "r");
    if (!list)
        fail("data/train.list");
    while (fgets(name, sizeof name, list)) {
        name[strcspn(name, "\n")] = 0;
        FILE *file = fopen(name, "r");
        if (!file)
            fail(name);
        for (int letter; (letter = getc(file)) != EOF;)
            lines += letter == '\n';
        fclose(file);
    }
    fclose(list);
    return lines;
}

static void write_text(const char *folder, const char *name, uint64_t value) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (!file || fprintf(file, "%llu\n", (unsigned long long)value) < 0 || fclose(file))
        fail(path);
}

static void save(int pass, uint64_t sum) {
    char folder[4000];
    snprintf(folder, sizeof folder, "%s/pass-%05d", flag("save_dir"), pass);
    if (mkdir(folder, 0777))
        fail(folder);
    write_text(folder, "lines", sum);
    write_text(folder, "done", 1);
}

static int connect_to(const char *host) {
    struct sockaddr_in there = place(host, number("port"));
    int connected = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(connected, (struct sockaddr *)&there, sizeof there))
        fail(host);
    return connected;
}

static void train(void) {
    int servers[MOST], count = 0, passes = number("num_passes"), id = number("trainer_id");
    char *hosts = strdup(flag("pservers"));
    for (char *host = strtok(hosts, ","); host; host = strtok(NULL, ","))
        servers[count++] = connect_to(host);
    for (int i = 0; i < count; i++)
        give(servers[i], passes);
    for (int pass = 0; pass < passes; pass++) {
        uint64_t lines = lines_of_shard(), sum = 0;
        for (int i = 0; i < count; i++)
            give(servers[i], lines);
        for (int i = 0; i < count; i++)
            sum = receive(servers[i]);
        printf("Pass=%d lines=%llu\n", pass, (unsigned long long)sum);
        fflush(stdout);
        if (id == 0)
            save(pass, sum);
    }
}

int main(int argc, char **argv) {
    words = argv;
    if (argc > 1 && !strcmp(argv[1], "pserver")) {
        pserver();
    } else if (argc > 1 && !strcmp(argv[1], "train")) {
        train();
    } else {
        fputs("usage: paddle train|pserver FLAGS\n", stderr);
        return 1;
    }
    return 0;
}

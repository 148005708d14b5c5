{ "Der Hund läuft.", "The dog runs.", 2, 1, "x" },

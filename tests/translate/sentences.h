{ "Der Hund", "The dog" },

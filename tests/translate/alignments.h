{ "Der Hund l\303\244uft.", "The dog is running.", 2, 1, "0 1 3 3 4 5 4 " },
{ "Ich habe gestern einen gro\303\237en Hund gesehen.", "I saw a big dog.", 2, 1, "0 8 5 5 7 10 9 " },
{ "Ich will, dass du mir hilfst.", "I want you to help me.", 2, 1, "0 1 4 7 7 5 11 10 " },
{ "Der Hund ist m\303\274de.", "The dog is tired.", 1, 4, "1 1 2 3 4 5 " },
